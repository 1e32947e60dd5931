"""A TPU is found and reached; if it is not, all ranks get the error that says why."""

import contextlib
import os
import socket
import threading
import time

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402
from helpers.pretend.cloud import pretend_cloud  # noqa: E402
from helpers.pretend.tpus import PretendResolver, initialized  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import (  # noqa: E402 - TensorFlow may be missing
    ArgumentTypeError,
    ClusterError,
    CommunicationTimeoutError,
    UsageError,
)
from mpistrat.tensorflow.tpu.connect import Steps  # noqa: E402
from mpistrat.tensorflow.tpu.port_check import knock  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

TWO = pytest.mark.mpi(ranks=2, timeout_s=30)


@pytest.fixture
def cloud(monkeypatch):
    with pretend_cloud(monkeypatch) as made:
        yield made


def resolver(cloud, name):
    return tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name, service=cloud)


def steps(timeout_s=10.0):
    return Steps(timeout_s, 0, 1)


def test_a_name_is_looked_up_in_zone_and_project_of_this_machine(cloud):
    found = steps().find(resolver(cloud, "ready"))
    assert found.hosts == ("10.0.0.1:8470", "10.0.0.2:8470")
    assert found.name == "grpc://10.0.0.1:8470"


@pytest.mark.parametrize(
    ("tpu", "hosts"),
    [("local", ()), ("grpc://a:1,grpc://b", ("a:1", "b:8470"))],
)
def test_names_that_nobody_is_asked_for(cloud, tpu, hosts):
    assert steps().find(tpu).hosts == hosts


def test_the_name_of_the_environment(cloud, monkeypatch):
    monkeypatch.setenv("TPU_NAME", "grpc://c:2")
    assert steps().find(None).hosts == ("c:2",)


@pytest.mark.parametrize(
    ("name", "text"),
    [("missing", "Could not lookup TPU metadata from name 'missing'"), ("creating", "CREATING")],
)
def test_a_tpu_that_is_not_there(cloud, name, text):
    with pytest.raises(ClusterError, match=text) as caught:
        steps().find(resolver(cloud, name))
    message = str(caught.value)
    assert "rank 0/1: could not find the TPU" in message
    assert all(what in message for what in ("name", "zone", "project", "READY", "credentials"))


def test_no_client_or_no_credentials(cloud):
    with pytest.raises(ClusterError, match=r"cloud-tpu-client|credentials"):
        steps().find("ready")


def test_no_name(cloud):
    with pytest.raises(UsageError, match="no TPU is named; give its name"):
        mpistrat.TPUStrategy()


def test_a_server_that_does_not_answer(cloud):
    cloud.delay_s = 2.0
    start = time.monotonic()
    with pytest.raises(CommunicationTimeoutError, match=r"could not find the TPU 'ready'.*0\.2"):
        steps(0.2).find("ready")
    assert time.monotonic() - start < 1.5


def test_a_machine_without_a_tpu():
    with pytest.raises(ClusterError, match=r"(?s)could not initialize the TPU 'local'.*libtpu"):
        mpistrat.TPUStrategy("local")


def test_b100_what_the_program_has_initialized_is_left_alone():
    with initialized() as topology, mpistrat.TPUStrategy(PretendResolver()) as s:
        assert s.topology is topology
        assert isinstance(s.tf_strategy, tf.distribute.TPUStrategy)
        assert isinstance(s.cluster_resolver, PretendResolver)


def test_a_port_where_nobody_listens():
    with pytest.raises(
        ClusterError, match=r"could not connect to the TPU 'grpc://127.0.0.1:1'"
    ) as e:
        mpistrat.TPUStrategy("grpc://127.0.0.1:1")
    assert "127.0.0.1:1 (ConnectionRefusedError" in str(e.value)
    assert "gRPC port (8470)" in str(e.value)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"", "TimeoutError"),
        (b"220 mail.example ESMTP", "does not speak gRPC; it began with b'220 '"),
    ],
)
def test_a_port_where_another_server_listens(said, text):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        held = []

        def answer():
            held.append(server.accept()[0])
            held[0].sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        start = time.monotonic()
        with pytest.raises(ClusterError, match=text) as e:
            mpistrat.TPUStrategy(f"grpc://{address}", timeout_s=1)
        assert time.monotonic() - start < 5
        assert address in str(e.value)
        held[0].close()


@TWO
def test_a_step_that_is_late_where_one_rank_drives_is_late_on_all():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(CommunicationTimeoutError, match=r"rank 0/2: could not find the TPU"),
    ):
        mpistrat.TPUStrategy(_Silent(server.getsockname()[1]), driver=0, timeout_s=0.3)


class _Silent(tf.distribute.cluster_resolver.TPUClusterResolver):
    """One that asks a server which does not answer."""

    def __init__(self, port):
        self._port = port

    def cluster_spec(self):
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.recv(1)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"timeout_s": 0}, "timeout_s=0; expected a number of seconds"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"timeout_s": "1"}, "timeout_s='1'"),
        ({"on_preemption": 3}, "on_preemption=3; expected a function"),
    ],
)
def test_wrong_options(how, text):
    with pytest.raises(UsageError, match=text):
        mpistrat.TPUStrategy("local", **how)


def test_the_environment_may_name_this_machine(cloud, monkeypatch):
    monkeypatch.setenv("TPU_NAME", "local")
    with pytest.raises(ClusterError, match="could not initialize the TPU 'local'"):
        mpistrat.TPUStrategy()


def test_a_server_of_grpc_is_let_pass():
    address = tf.distribute.Server.create_local_server().target.removeprefix("grpc://")
    began = time.monotonic()
    knock([address], 10)
    assert time.monotonic() - began < 10


def test_all_hosts_are_asked_at_a_time():
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]

        def answer():  # once all have asked
            held = [stack.enter_context(server.accept()[0]) for server in servers]
            for one in held:
                one.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))

        threading.Thread(target=answer, daemon=True).start()
        knock([f"127.0.0.1:{server.getsockname()[1]}" for server in servers], 20)
        with pytest.raises(ClusterError, match=r"127.0.0.1:5 .*Refused.* and 2 more of 6"):
            knock([f"127.0.0.1:{port}" for port in (2, 3, 4, 5, 6, 7)], 20)


class _SpecOnly:
    """As TensorFlow's resolvers of other clusters are."""

    def cluster_spec(self):
        raise AssertionError("nobody asks")


@pytest.mark.parametrize(
    ("tpu", "text"),
    [
        (3, "expected a TPUClusterResolver"),
        ([_SpecOnly()], r"_SpecOnly.*on rank 0/1; expected a TPUClusterResolver"),
        (["a", "b"], "2 TPUs for 1 ranks"),
    ],
)
def test_wrong_resolvers(tpu, text):
    with pytest.raises(UsageError, match=text):
        mpistrat.TPUStrategy(tpu)


def test_wrong_assignments():
    with initialized(), pytest.raises(UsageError, match="expected a DeviceAssignment"):
        mpistrat.TPUStrategy(PretendResolver(), [1, 1, 1, 2])


@TWO
def test_two_ranks_cannot_have_one_tpu():
    with pytest.raises(UsageError, match="expected another TPU for each rank"):
        mpistrat.TPUStrategy("grpc://127.0.0.1:1")
    pods = ["grpc://127.0.0.1:1,grpc://127.0.0.1:2", "grpc://127.0.0.1:2"]
    with pytest.raises(UsageError, match=r"TPUs of ranks \[0, 1\] have one host, 127.0.0.1:2 on"):
        mpistrat.TPUStrategy(pods)
    with pytest.raises(UsageError, match="1 TPUs for 2 ranks with driver=None"):
        mpistrat.TPUStrategy(["local"])
    with pytest.raises(UsageError, match="2 TPUs for 2 ranks with driver=0"):
        mpistrat.TPUStrategy(["local", "local"], driver=0)


@TWO
@pytest.mark.parametrize("name", ["localhost", "127.0.1.1", "tpu.internal"])
def test_a_loopback_address_is_of_each_machine(name):
    """All TPU VMs are started with the same one; it is another host on each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPISTRAT_NODE_SIZE", "1")  # each rank is a machine
        shared, kind = "have one host, tpu.internal:8470; .* name.* driver=0", UsageError
        if name != "tpu.internal":
            shared, kind = "nobody is there", ClusterError
            patch.setattr(Steps, "reach", _nobody)
        with pytest.raises(kind, match=shared):
            mpistrat.TPUStrategy(f"grpc://{name}:8470")


def _nobody(*_):
    raise ClusterError("nobody is there")


@TWO
def test_a_list_names_the_tpu_of_each_rank():
    with initialized(), mpistrat.TPUStrategy([PretendResolver(2), PretendResolver(2)]) as s:
        assert s.num_replicas_in_sync == 4


class _Master(PretendResolver):
    """One that calls a function before it says where its TPU is, and one once that is made."""

    def __init__(self, asked, made=lambda: None):
        super().__init__()
        self._asked, self._when_made = asked, made

    def master(self, *_, **__):
        self._asked()
        return ""

    def get_tpu_system_metadata(self):
        found = super().get_tpu_system_metadata()
        self._when_made()
        return found


@TWO
@pytest.mark.parametrize(
    ("second", "kind", "text"),
    [
        (lambda: 3, ArgumentTypeError, "=3 on rank 1/2; expected a TPUClusterResolver"),
        (lambda: "grpc://127.0.0.1:1", ClusterError, "rank 1/2: could not connect"),
        (
            lambda: _Master(lambda: time.sleep(60)),
            CommunicationTimeoutError,
            "1/2: could not find",
        ),
    ],
)
def test_what_fails_on_one_rank_is_the_same_error_on_all(second, kind, text):
    from mpi4py import MPI

    with initialized(), pytest.raises(kind, match=text) as caught:
        mpistrat.TPUStrategy([PretendResolver(), second()], timeout_s=2)
    told = "rank 1/2 raised this in"
    assert (told in str(caught.value.__cause__)) == (MPI.COMM_WORLD.rank == 0)


@takes_long()
@TWO
def test_who_is_done_waits_for_the_steps_of_the_others():
    with initialized(), pytest.MonkeyPatch.context() as patch:
        in_a_hurry = _Master(lambda: patch.setenv("MPISTRAT_TIMEOUT", "0.1"), patch.undo)
        slow = _Master(lambda: time.sleep(1))
        with mpistrat.TPUStrategy([in_a_hurry, slow], timeout_s=20) as s:
            assert s.num_replicas_in_sync == 4
        assert "MPISTRAT_TIMEOUT" not in os.environ


@takes_long()
@TWO
def test_what_fails_where_one_rank_drives_fails_on_all():
    with pytest.raises(ClusterError, match="rank 1/2: could not initialize the TPU 'local'"):
        mpistrat.TPUStrategy("local", driver=1)
