"""SlurmClusterResolver gives MPI's ranks the roles that TensorFlow's arguments ask for."""

import os

import pytest

import mpistrat
from mpistrat.cluster.resolvers.mpi import resolver_of
from mpistrat.cluster.topology import Topology
from mpistrat.cluster_resolver import MPIClusterResolver, SlurmClusterResolver
from mpistrat.errors import ClusterError

HOSTS = ["n0", "n0", "n1", "n1", "n2", "n2"]


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch):
    launchers = ("SLURM", "OMPI_", "PMI_", "PMIX_", "PALS_", "MV2_", "FLUX_", "MPI_LOCAL")
    for name in [name for name in os.environ if name.startswith(launchers)]:
        monkeypatch.delenv(name)


def resolver(rank, *args, hosts=HOSTS, **options):
    return SlurmClusterResolver(*args, topology=Topology.from_hosts(rank, hosts), **options)


def roles(*args, hosts=HOSTS, **options):
    found = [resolver(rank, *args, hosts=hosts, **options) for rank in range(len(hosts))]
    return [one.get_task_info() for one in found]


def test_every_rank_is_a_worker():
    one = resolver(3)
    assert roles() == [("worker", rank) for rank in range(6)]
    assert one.cluster_spec().as_dict() == {
        "worker": ["n0:8888", "n0:8889", "n1:8888", "n1:8889", "n2:8888", "n2:8889"]
    }
    assert one.master() == "grpc://n1:8889"
    assert one.master("worker", 4) == "grpc://n2:8888"
    assert one.master("worker", 4, rpc_layer="other") == "other://n2:8888"


def test_parameter_servers_are_last():
    """TensorFlow's own takes jobs by their names, so that ps come before workers."""
    jobs = {"ps": 2, "worker": 3, "chief": 1}
    assert roles(jobs) == [
        *(("chief", 0), ("worker", 0), ("worker", 1), ("worker", 2), ("ps", 0), ("ps", 1))
    ]
    one = resolver(5, jobs, port_base=100)
    assert one.cluster_spec().as_dict() == {
        "chief": ["n0:100"],
        "worker": ["n0:101", "n1:100", "n1:101"],
        "ps": ["n2:100", "n2:101"],
    }
    assert (one.num_ps, one.num_evaluators) == (2, 0)
    assert isinstance(one, MPIClusterResolver)


def test_other_roles():
    with_evaluator = {"chief": 1, "worker": 3, "ps": 1, "evaluator": 1}
    assert roles(with_evaluator)[-2:] == [("ps", 0), ("evaluator", 0)]
    assert roles({"chief": 1, "worker": 5})[:2] == [("chief", 0), ("worker", 0)]
    assert roles({"worker": 6, "ps": 0}) == [("worker", rank) for rank in range(6)]


def test_one_process_plays_all_roles():
    one = resolver(0, {"chief": 1, "worker": 3, "ps": 2}, hosts=["a"])
    assert one.get_task_info() == ("chief", 0)
    assert one.cluster_spec().num_tasks("ps") == 2


@pytest.mark.parametrize(
    ("jobs", "text"),
    [
        ({"master": 1}, "names 'master'; expected only chief, worker, ps, evaluator"),
        ({"worker": -1}, r"jobs\['worker'\]=-1: expected 0 or more"),
        ({"worker": True}, r"jobs\['worker'\]=True: expected a whole number"),
        ({"worker": 2.0}, "expected a whole number"),
        ({}, "expected a worker or more"),
        ({"ps": 1}, "expected a worker or more"),
        ({"ps": 1, "worker": 4}, "add 'chief': 1"),
        ({"chief": 2, "worker": 4}, "one chief at most"),
        ({"chief": 1, "worker": 1, "evaluator": 1}, "ps beside the evaluator"),
        ("worker", "is a str; expected a dict"),
    ],
)
def test_what_makes_no_cluster(jobs, text):
    with pytest.raises(mpistrat.errors.UsageError, match=text):
        SlurmClusterResolver(jobs)


@pytest.mark.parametrize(
    "options",
    [
        *({name: "1"} for name in ("port_base", "gpus_per_node", "gpus_per_task")),
        *({"tasks_per_node": value} for value in ("2", {"n0": "2"}, -1)),
        {"auto_set_gpu": 1},
    ],
    ids=str,
)
def test_wrong_arguments(options):
    with pytest.raises(mpistrat.errors.UsageError, match=r"expected"):
        SlurmClusterResolver(**options)


@pytest.mark.parametrize("rank", range(6))
def test_other_ranks_than_were_asked_for(rank):
    with pytest.raises(RuntimeError, match=r"are 7 tasks, but the job has 6 ranks;.* srun -n 7"):
        resolver(rank, {"chief": 1, "worker": 6})
    topology = Topology.from_hosts(rank, HOSTS)
    for given in (SlurmClusterResolver({"worker": 7}), SlurmClusterResolver(tasks_per_node=3)):
        with pytest.raises(ClusterError):
            resolver_of(topology, given)


def test_tasks_per_node():
    assert roles(tasks_per_node=2) == roles(tasks_per_node={"n0": 2, "n1": 2, "n2": 2}) == roles()
    with pytest.raises(ClusterError, match=r"tasks_per_node=3, but node n0 has 2 ranks"):
        resolver(0, tasks_per_node=3)
    with pytest.raises(ClusterError, match="but node n2 has 2 ranks"):
        resolver(0, tasks_per_node={"n0": 2, "n1": 2})


def test_gpus(monkeypatch):
    assert resolver(0).num_accelerators() == {"GPU": 0}
    assert resolver(0, gpus_per_node=4).num_accelerators() == {"GPU": 2}
    assert resolver(0, gpus_per_node=4, gpus_per_task=1).num_accelerators() == {"GPU": 1}
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "8")
    assert resolver(0).num_accelerators() == {"GPU": 4}
    with pytest.raises(RuntimeError, match=r"gpus_per_task=3 for the 2 ranks of node n0 are more"):
        resolver(0, gpus_per_node=4, gpus_per_task=3)


@pytest.mark.parametrize(
    ("nodes", "hosts", "wanted"),
    [
        ("n[0-2]", HOSTS, None),
        ("n[0-9]", HOSTS, "without a rank: 7 of 10 (n3, n4, n5, n6, ...); start more"),
        ("n[", HOSTS, "SLURM_JOB_NODELIST: list of hosts 'n[' cannot be read"),
        # Names of hosts that are not Slurm's names of nodes tell nothing.
        ("cloud-[1-9]", HOSTS, None),
    ],
)
def test_nodes_without_a_rank(monkeypatch, nodes, hosts, wanted):
    told = []
    monkeypatch.setattr(
        "mpistrat.cluster.resolvers.slurm.warn_once", lambda _log, _key, text: told.append(text)
    )
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    resolver(0, hosts=hosts)
    monkeypatch.setenv("PMI_RANK", "0")  # a launcher has started it
    resolver(1, hosts=hosts)
    assert not told
    resolver(0, hosts=hosts)
    assert len(told) == (wanted is not None)
    assert wanted is None or wanted in told[0]


def test_a_strategy_without_a_resolver_gets_mpis():
    assert type(resolver_of(Topology.from_hosts(0, HOSTS), None)) is MPIClusterResolver
