"""Ranks get roles by options, by TF_CONFIG of the environment, or by the program's text."""

import json
import logging
import os

import pytest

from mpistrat.cluster.resolvers import tf_config_of_ranks
from mpistrat.cluster.resolvers.tf_config_of_ranks import JobRoles, describe
from mpistrat.cluster.topology import Topology
from mpistrat.errors import ClusterError, UsageError
from mpistrat.run.roles import check_servers, needed_roles

SERVERS = b"import tensorflow as tf\ns = tf.distribute.ParameterServerStrategy(r)\n"
CLUSTER = {"chief": ["a:1"], "worker": ["a:2", "b:1"], "ps": ["b:2", "b:3"]}


@pytest.fixture(autouse=True)
def without_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")  # so that it is restored, too
    monkeypatch.delenv("TF_CONFIG")


def roles(rank, size, *counts, **more):
    return JobRoles(Topology.from_hosts(rank, ["host"] * size), *counts, **more)


@pytest.mark.parametrize(
    ("options", "source", "want"),
    [
        ((2, 1), SERVERS, ((2, 1), True)),
        ((0, 0), SERVERS, ((0, 0), True)),
        ((None, 0), SERVERS, ((1, 0), False)),
        ((None, 0), "from x import ParameterServerStrategy", ((1, 0), False)),
        ((None, 0), SERVERS + b"tf.distribute.MirroredStrategy", ((0, 0), False)),
        ((None, 0), b"x = (", ((0, 0), False)),
        ((None, 0), None, ((0, 0), False)),
    ],
)
def test_numbers_of_servers(options, source, want):
    assert needed_roles(*options, source) == want


def test_numbers_of_a_given_config(monkeypatch):
    config = {"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert needed_roles(None, 0, SERVERS) == ((2, 0), True)
    assert needed_roles(1, 0, SERVERS) == ((1, 0), True)
    for wrong in ("{", "[]", '{"cluster": 3}', '{"cluster": {"worker": 3}}'):
        monkeypatch.setenv("TF_CONFIG", wrong)
        with pytest.raises(UsageError, match="no JSON object with a cluster"):
            needed_roles(None, 0, None)


def tasks(size, *counts):
    found = [roles(rank, size, *counts).tf_config() for rank in range(size)]
    assert all(one["cluster"] == found[0]["cluster"] for one in found)
    jobs = {job: len(labels) for job, labels in found[0]["cluster"].items()}
    return jobs, [f"{one['task']['type']} {one['task']['index']}" for one in found]


def test_config_of_each_rank():
    assert tasks(1) == ({"worker": 1}, ["worker 0"])
    assert tasks(3) == ({"worker": 3}, ["worker 0", "worker 1", "worker 2"])
    assert tasks(1, 2) == ({"chief": 1, "worker": 1, "ps": 2}, ["chief 0"])
    # Too few: rank 0 has all roles.
    assert tasks(2, 1) == ({"chief": 1, "worker": 1, "ps": 1}, ["chief 0", "worker 0"])
    with pytest.raises(ClusterError, match="num_ps=3 needs 5 ranks"):
        tasks(4, 3)


def test_evaluators_are_outside_of_the_cluster(monkeypatch):
    splits = []

    class World:
        def __init__(self, rank):
            self.rank = rank

        def Split(self, color, key):  # noqa: N802 - mpi4py's
            splits.append((color, key))
            return f"part {color}"

    hosts = Topology.from_hosts(0, ["a", "a", "b", "b", "b"]).hostnames
    found = []
    for rank in range(5):
        monkeypatch.setattr("mpistrat.cluster.mpi.world", lambda rank=rank: World(rank))
        monkeypatch.setattr(Topology, "of", lambda comm: Topology.from_hosts(comm.rank, hosts))
        found.append(JobRoles.of_job(1, 1, is_told=True))
    assert splits == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 4)]
    configs = [one.tf_config() for one in found]
    told = [f"{one['task']['type']} {one['task']['index']}" for one in configs]
    assert told == ["chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"]
    assert all(one["cluster"] == configs[0]["cluster"] for one in configs)
    assert [one.is_chief for one in found] == [True] + 4 * [False]
    with pytest.raises(ClusterError, match="needs 6 ranks"):
        JobRoles.of_job(3, 1, is_told=True)
    with pytest.raises(UsageError, match="num_evaluators=1 without num_ps"):
        JobRoles.of_job(0, 1, is_told=True)


@pytest.mark.parametrize(
    ("size", "wanted", "num_ps"), [(1, 2, 2), (2, 2, 2), (3, 2, 1), (4, 2, 2), (9, 2, 2)]
)
def test_servers_that_the_program_asks_for(size, wanted, num_ps):
    assert roles(0, size).with_ps(wanted).num_ps == num_ps
    assert roles(0, size, 1).with_ps(wanted).num_ps == num_ps
    assert roles(0, size, 1, is_told=True).with_ps(wanted).num_ps == 1


def test_a_config_of_the_program_is_replaced(monkeypatch, caplog):
    mine = roles(1, 3)
    logger = logging.getLogger("mpistrat")
    monkeypatch.setattr(logger, "propagate", True)
    assert not mine.replace_given()
    assert "TF_CONFIG" not in os.environ
    mine.publish()
    assert not mine.replace_given()
    for given, told in (
        (json.dumps({"cluster": CLUSTER}), "no task of 1 chief, 2 worker, 2 ps"),
        ("nonsense", "no JSON object"),
    ):
        monkeypatch.setattr("mpistrat.system.log._once", set())
        monkeypatch.setenv("TF_CONFIG", given)
        assert mine.replace_given()
        assert f"({told}) is replaced by what MPI says: worker 1 of 3 worker" in caplog.text
        assert json.loads(os.environ["TF_CONFIG"]) == mine.tf_config()


def test_without_the_command_every_rank_is_a_worker(monkeypatch):
    monkeypatch.setattr(tf_config_of_ranks, "_current", [])
    monkeypatch.setattr("mpistrat.cluster.mpi.world", lambda: None)
    assert tf_config_of_ranks.current().tf_config()["task"] == {"type": "worker", "index": 0}
    assert tf_config_of_ranks.current() is tf_config_of_ranks.current()
    assert describe("[]") == "no JSON object"
    assert describe('{"cluster": {"worker": 3}}') == "no task of no cluster"


def test_a_config_with_a_chief_makes_rank_0_the_chief(monkeypatch, caplog):
    given = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    monkeypatch.setattr(tf_config_of_ranks, "_current", [roles(1, 3)])
    config = {"cluster": given, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with caplog.at_level(logging.WARNING):
        found = tf_config_of_ranks.current()
        assert found.replace_given()
    said = json.loads(os.environ["TF_CONFIG"])
    assert {job: len(tasks) for job, tasks in said["cluster"].items()} == {"chief": 1, "worker": 2}
    assert said["task"] == {"type": "worker", "index": 0}
    first = roles(0, 3).named_as_in(os.environ["TF_CONFIG"]).tf_config()["task"]
    assert first == {"type": "chief", "index": 0}
    assert roles(0, 1).named_as_in(json.dumps(config)).tf_config()["cluster"] == {
        "chief": ["host:0"]
    }


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '{"cluster": {"worker": ["a:1"]}}'])
def test_other_configs_name_no_chief(text):
    assert not roles(0, 2).named_as_in(text).has_chief


def test_parameter_servers_have_a_chief_of_their_own():
    assert not roles(0, 5, 2).named_as_in(json.dumps({"cluster": CLUSTER})).has_chief


@pytest.mark.parametrize(("counts", "size"), [((5, 0), 2), ((2, 0), 3), ((1, 1), 2), ((2, 1), 4)])
def test_more_servers_than_the_job_has_ranks_for(counts, size):
    least = sum(counts) + 2
    with pytest.raises(UsageError, match=rf"--ps {counts[0]} needs {least} ranks .* has {size};"):
        check_servers(*counts, size)


@pytest.mark.parametrize(
    ("counts", "size"), [((None, 0), 2), ((0, 0), 2), ((9, 0), 1), ((1, 0), 2), ((5, 0), 7)]
)
def test_servers_that_fit(counts, size):
    check_servers(*counts, size)
