"""Nodes and local ranks, from the machine of every rank."""

import pytest

from mpistrat.cluster.topology import Topology, host_name

RANKS = range(8)


@pytest.mark.parametrize("per_node", [1, 2, 4, 8])
@pytest.mark.parametrize("rank", RANKS)
def test_blocks_of_ranks_on_nodes(rank, per_node):
    top = Topology.from_hosts(rank, [f"node{r // per_node}" for r in RANKS])
    assert (top.rank, top.size) == (rank, 8)
    assert (top.node, top.num_nodes) == (rank // per_node, 8 // per_node)
    assert (top.local_rank, top.local_size) == (rank % per_node, per_node)


@pytest.mark.parametrize("rank", RANKS)
def test_ranks_dealt_out_in_turn(rank):
    top = Topology.from_hosts(rank, [f"z{3 - r % 4}" for r in RANKS])
    assert (top.node, top.num_nodes) == (rank % 4, 4)  # in order of lowest ranks, not of names
    assert (top.local_rank, top.local_size) == (rank // 4, 2)


def test_uneven_nodes():
    hosts = ["a", "a", "b", "a", "c"]
    tops = [Topology.from_hosts(rank, hosts) for rank in range(5)]
    assert [(t.node, t.local_rank, t.local_size) for t in tops] == [
        *((0, 0, 3), (0, 1, 3), (1, 0, 1), (0, 2, 3), (2, 0, 1)),
    ]
    assert {t.hostnames for t in tops} == {("a", "a", "b", "a", "c")}


def test_devices_are_spelled_as_in_tensorflow():
    assert Topology.from_hosts(3, ["a"] * 4).devices == (
        "/job:worker/replica:0/task:3/device:CPU:0",
    )


def test_alone(monkeypatch):
    monkeypatch.setattr("mpistrat.cluster.mpi.world", lambda: None)
    top = Topology.of()
    assert (top.rank, top.size, top.num_nodes, top.local_size) == (0, 1, 1, 1)
    assert top.hostnames == (host_name().partition("@")[0],)


def test_slurm_names_the_node(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "n042.cluster.org")
    monkeypatch.setenv("SLURMD_NODENAME", "n042")
    assert host_name() == "n042"
    monkeypatch.delenv("SLURMD_NODENAME")
    assert host_name() == "n042.cluster.org"


def test_a_name_that_an_mpirun_hands_to_all_tells_no_nodes_apart(monkeypatch):
    """As with the variables of the batch script on ranks that were started by ssh."""
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    names = []
    for host in ("n1", "n2"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        names.append(host_name())
    assert names == ["n1", "n1@n2"]
    assert Topology.from_hosts(1, names).num_nodes == 2
    assert Topology.from_hosts(1, names).hostnames == ("n1", "n1@n2")


def test_nodes_of_one_machine(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "machine")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    names = [host_name(), "n2@machine"]
    assert names[0] == "n1@machine"
    assert Topology.from_hosts(0, names).hostnames == ("n1", "n2")
