"""Cluster resolvers give the answers of TensorFlow's, and MPI's roles."""

import json
from dataclasses import replace

import pytest

from mpistrat.cluster.topology import Topology
from mpistrat.cluster_resolver import (
    ClusterResolver,
    ClusterSpec,
    MPIClusterResolver,
    SimpleClusterResolver,
    TFConfigClusterResolver,
)
from mpistrat.errors import ClusterError

JOBS = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


@pytest.fixture
def tf_config(monkeypatch):
    def set_it(config):
        text = config if isinstance(config, str) else json.dumps(config)
        monkeypatch.setenv("TF_CONFIG", text)

    monkeypatch.delenv("TF_CONFIG", raising=False)
    return set_it


# ------------------------------------------------------------------------------- ClusterSpec


def test_cluster_spec():
    spec = ClusterSpec(JOBS)
    assert spec.as_dict() == JOBS
    assert spec.jobs == ["chief", "worker", "ps"]
    assert (spec.num_tasks("worker"), spec.task_address("worker", 1)) == (2, "c:1")
    assert (spec.job_tasks("worker"), spec.task_indices("worker")) == (["b:1", "c:1"], [0, 1])
    assert spec == ClusterSpec(spec)
    assert spec != ClusterSpec({})
    assert (bool(spec), bool(ClusterSpec({}))) == (True, False)
    assert repr(ClusterSpec({"ps": ["d"], "chief": ["a"]})) == (
        "ClusterSpec({'chief': ['a'], 'ps': ['d']})"
    )


def test_cluster_spec_with_gaps():
    spec = ClusterSpec({"worker": {3: "y:2", 1: "x:1"}})
    assert spec.as_dict() == {"worker": {1: "x:1", 3: "y:2"}}
    assert spec.job_tasks("worker") == [None, "x:1", None, "y:2"]
    assert spec.num_tasks("worker") == 2


def test_cluster_spec_names_what_is_missing():
    spec = ClusterSpec(JOBS)
    for ask in (lambda: spec.num_tasks("x"), lambda: spec.job_tasks("x")):
        with pytest.raises(ValueError, match="its jobs are"):
            ask()
    with pytest.raises(ValueError, match=r"no task 5 in job 'worker'; it has tasks \[0, 1\]"):
        spec.task_address("worker", 5)


@pytest.mark.parametrize("bad", [3, {"worker": "x"}, {"worker": [1]}])
def test_cluster_spec_refuses(bad):
    with pytest.raises(TypeError, match="expected"):
        ClusterSpec(bad)
    with pytest.raises(ValueError, match="whole number"):
        ClusterSpec({"worker": {"a": "x:1"}})


# --------------------------------------------------------------------- SimpleClusterResolver


def test_simple_resolver_says_what_it_was_told():
    resolver = SimpleClusterResolver(
        ClusterSpec(JOBS),
        master="m:1",
        task_type="worker",
        task_id=0,
        environment="cloud",
        num_accelerators={"GPU": 4},
    )
    assert resolver.cluster_spec().as_dict() == JOBS
    assert (resolver.task_type, resolver.task_id) == ("worker", 0)
    assert (resolver.environment, resolver.rpc_layer) == ("cloud", None)
    assert resolver.num_accelerators() == resolver.num_accelerators("ps", 0) == {"GPU": 4}
    assert resolver.master() == "m:1"
    assert isinstance(resolver, ClusterResolver)


def test_simple_resolver_defaults():
    resolver = SimpleClusterResolver(ClusterSpec(JOBS))
    assert (resolver.master(), resolver.environment) == ("", "")
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == (None, None, None)
    assert resolver.num_accelerators() == {}
    assert resolver.master("worker") == ""
    assert resolver.master("ps", 0) == "d:1"


def test_simple_resolver_puts_the_rpc_layer_before_addresses():
    resolver = SimpleClusterResolver(ClusterSpec(JOBS), rpc_layer="grpc")
    assert resolver.master() == "grpc://"
    assert resolver.master("ps", 0) == "grpc://d:1"
    assert resolver.master("worker", 0, "other") == "other://b:1"


def test_simple_resolver_can_be_changed():
    resolver = SimpleClusterResolver(ClusterSpec(JOBS))
    resolver.task_type, resolver.task_id, resolver.rpc_layer = "ps", 0, "x"
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("ps", 0, "x")
    assert resolver.master() == "x://"


def test_simple_resolver_refuses():
    with pytest.raises(TypeError, match="wrap it"):
        SimpleClusterResolver({"worker": ["a:1"]})
    resolver = SimpleClusterResolver(ClusterSpec(JOBS))
    with pytest.raises(ValueError, match="no task 9"):
        resolver.master("worker", 9)
    with pytest.raises(ValueError, match="no job 'zz'"):
        resolver.master("zz", 0)
    with pytest.raises(TypeError):
        ClusterResolver()


# ------------------------------------------------------------------- TFConfigClusterResolver


def test_e2_b111_tf_config(tf_config):
    cluster = {"worker": ["host0:2222", "host1:2222"], "ps": ["host2:2222"]}
    tf_config({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    resolver = TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == cluster
    assert (resolver.task_type, resolver.task_id) == ("worker", 0)
    assert resolver.master() == "host0:2222"
    assert resolver.master("worker", 1) == "host1:2222"
    assert resolver.environment is None
    assert resolver.num_accelerators("worker", 0)["CPU"] == 0


def test_arguments_take_the_place_of_tf_config(tf_config):
    tf_config({"cluster": JOBS, "task": {"type": "worker", "index": "1"}, "rpc_layer": "foo"})
    assert TFConfigClusterResolver().task_id == 1
    assert TFConfigClusterResolver().master() == "foo://c:1"
    resolver = TFConfigClusterResolver("ps", 0, "grpc", "env")
    assert (resolver.task_type, resolver.task_id, resolver.environment) == ("ps", 0, "env")
    assert resolver.master() == "grpc://d:1"
    resolver.task_type, resolver.task_id = "worker", 0
    assert resolver.master() == "grpc://b:1"


@pytest.mark.parametrize("config", [None, {"cluster": {}, "task": {}}, ""])
def test_tf_config_without_a_cluster(tf_config, config):
    if config is not None:
        tf_config(config)
    resolver = TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == {}
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == (None, None, None)
    assert resolver.master() == ""


def test_a_cluster_of_one_has_no_master(tf_config):
    tf_config({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})
    assert TFConfigClusterResolver().master() == ""


def test_tf_config_that_is_wrong(tf_config):
    for text in ("{", "3", "[]", '"x"'):
        tf_config(text)
        with pytest.raises(ValueError, match="TF_CONFIG"):
            TFConfigClusterResolver().cluster_spec()
    tf_config({"cluster": JOBS})
    with pytest.raises(ValueError, match="no task"):
        TFConfigClusterResolver().master()
    tf_config({"cluster": JOBS, "task": {"type": "worker", "index": 9}})
    with pytest.raises(ValueError, match="no task 9"):
        TFConfigClusterResolver().master()
    tf_config({"cluster": JOBS, "task": {"type": "worker", "index": "q"}})
    with pytest.raises(ValueError, match="whole number"):
        TFConfigClusterResolver().task_id  # noqa: B018
    tf_config({"cluster": JOBS, "task": 3})
    with pytest.raises(ValueError, match="expected an object"):
        TFConfigClusterResolver().task_type  # noqa: B018


# ------------------------------------------------------------------------ MPIClusterResolver


def resolvers(size, num_ps=0):
    hosts = [f"node{rank // 2}" for rank in range(size)]
    return [
        MPIClusterResolver(num_ps=num_ps, topology=Topology.from_hosts(rank, hosts))
        for rank in range(size)
    ]


def test_b111_every_rank_is_a_worker():
    ranks = resolvers(3)
    assert [(r.task_type, r.task_id) for r in ranks] == [("worker", rank) for rank in range(3)]
    labels = ["node0:0", "node0:1", "node1:2"]
    assert all(r.cluster_spec().as_dict() == {"worker": labels} for r in ranks)
    assert [r.master() for r in ranks] == labels
    assert ranks[0].master("worker", 2) == "node1:2"
    assert (ranks[0].environment, ranks[0].rpc_layer) == ("", None)


@pytest.mark.parametrize(("size", "num_ps"), [(3, 1), (4, 1), (6, 2), (8, 6)])
def test_b82_roles_with_parameter_servers(size, num_ps):
    ranks = resolvers(size, num_ps)
    workers = size - 1 - num_ps
    assert [(r.task_type, r.task_id) for r in ranks] == [
        ("chief", 0),
        *(("worker", i) for i in range(workers)),
        *(("ps", i) for i in range(num_ps)),
    ]
    spec = ranks[0].cluster_spec()
    assert [spec.num_tasks(job) for job in ("chief", "worker", "ps")] == [1, workers, num_ps]
    assert [r.master() for r in ranks] == [f"node{rank // 2}:{rank}" for rank in range(size)]


@pytest.mark.parametrize(("size", "num_ps"), [(2, 1), (3, 2), (2, 5)])
def test_too_few_ranks(size, num_ps):
    with pytest.raises(ClusterError, match=f"needs {num_ps + 2} ranks .* the job has {size}"):
        resolvers(size, num_ps)


def test_one_process_is_the_chief_and_threads_play_the_rest():
    (alone,) = resolvers(1, num_ps=3)
    assert (alone.task_type, alone.task_id, alone.num_ps) == ("chief", 0, 3)
    spec = alone.cluster_spec()
    assert [spec.num_tasks(job) for job in ("chief", "worker", "ps")] == [1, 1, 3]


@pytest.mark.parametrize(("size", "num_ps", "evaluators"), [(4, 1, 1), (6, 2, 1), (8, 2, 2)])
def test_evaluators_come_last_and_are_no_workers(size, num_ps, evaluators):
    ranks = [
        MPIClusterResolver(
            None, num_ps, evaluators, topology=Topology.from_hosts(rank, ["a"] * size)
        )
        for rank in range(size)
    ]
    roles = [(one.task_type, one.task_id) for one in ranks]
    assert roles[-evaluators:] == [("evaluator", index) for index in range(evaluators)]
    assert roles[:-evaluators] == [
        (one.task_type, one.task_id) for one in resolvers(size - evaluators, num_ps)
    ]
    spec = ranks[0].cluster_spec()
    assert spec.num_tasks("worker") == size - 1 - num_ps - evaluators
    assert spec.num_tasks("evaluator") == ranks[0].num_evaluators == evaluators


def test_evaluators_need_ranks_and_parameter_servers():
    with pytest.raises(ClusterError, match=r"needs 4 ranks .* 1 ps, 1 evaluators"):
        MPIClusterResolver(None, 1, 1, topology=Topology.from_hosts(0, ["a"] * 3))
    with pytest.raises(ValueError, match="num_evaluators=1 without num_ps"):
        MPIClusterResolver(num_evaluators=1)
    with pytest.raises(ValueError, match="num_evaluators=-1"):
        MPIClusterResolver(num_ps=1, num_evaluators=-1)
    alone = MPIClusterResolver(None, 1, 1, topology=Topology.from_hosts(0, ["a"]))
    assert "evaluator" not in alone.cluster_spec().jobs


def test_num_ps_is_checked():
    with pytest.raises(ValueError, match="0 or more"):
        MPIClusterResolver(num_ps=-1)
    with pytest.raises(TypeError, match="whole number"):
        MPIClusterResolver(num_ps="1")


def test_the_topology_is_asked_for_once_and_late(monkeypatch):
    calls = []

    def of(comm):
        calls.append(comm)
        return Topology.from_hosts(1, ["h", "h"])

    monkeypatch.setattr(Topology, "of", of)
    resolver = MPIClusterResolver("comm")
    assert calls == []
    assert (resolver.task_type, resolver.task_id, resolver.topology.rank) == ("worker", 1, 1)
    assert resolver.cluster_spec().num_tasks("worker") == 2
    assert calls == ["comm"]


def test_num_accelerators_counts_this_ranks_devices():
    (alone,) = resolvers(1)
    assert alone.num_accelerators() == {"CPU": 1}
    devices = ("/job:worker/replica:0/task:0/device:GPU:0", "GPU:1", "/gpu:2", "cpu:0")
    topology = replace(alone.topology, devices=devices)
    assert MPIClusterResolver(topology=topology).num_accelerators() == {"GPU": 3, "CPU": 1}


def test_roles_can_be_set_by_hand():
    (alone,) = resolvers(1)
    alone.task_type, alone.task_id = "evaluator", 4
    assert (alone.task_type, alone.task_id) == ("evaluator", 4)
