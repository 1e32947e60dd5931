"""Launcher variables that do not fit MPI are one error on every rank."""

import os

import pytest

from mpistrat.cluster.launcher import mpi_agreement
from mpistrat.cluster.launcher.mpi_agreement import Announced, announced, check
from mpistrat.errors import ClusterError

PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PALS_", "MV2_", "SLURM", "FLUX_", "MPI_", "MPICH_RANK")
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
}


@pytest.fixture
def setenv(monkeypatch):
    for name in [n for n in os.environ if n.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    for name in ("MPISTRAT_ALLOW_SINGLETON", "MPISTRAT_NODE_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


@pytest.mark.parametrize(
    ("variables", "node"),
    [
        ({}, None),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, None),
        ({"OMPI_COMM_WORLD_RANK": "3"}, None),
        ({"PALS_RANKID": "3", "PALS_LOCAL_RANKID": "1"}, None),
        ({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4"}, None),
        ({"PMIX_RANK": "3", "PMIX_NAMESPACE": "prterun-host-7@1"}, None),
        (STEP, 1),
        (STEP | {"PMI_RANK": "3"}, 1),
        (STEP | {"PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.7.0"}, 1),
        # mpirun inside a step: Slurm's number of the process is that of the daemon.
        (STEP | {"SLURM_PROCID": "0", "PMI_RANK": "3", "MPI_LOCALRANKID": "1"}, None),
        (STEP | {"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "3"}, None),
        # An mpirun within the rank of another job, whose variables it inherits.
        ({"OMPI_COMM_WORLD_RANK": "0", "PMI_RANK": "3"}, None),
        ({"PMI_RANK": "0", "MPICH_RANK_REORDER_METHOD": "3"}, None),
        # A launcher that is not known, called in the shell of `srun --pty`: one task for Slurm.
        (STEP | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
    ],
)
def test_what_fits(setenv, variables, node):
    setenv(variables)
    assert announced((3, 4)) == Announced(node)


@pytest.mark.parametrize("name", ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK"])
def test_another_rank(setenv, name):
    setenv({name: "0"})
    complaint = announced((3, 4)).complaint
    assert complaint == f"is rank 3 by MPI, but has {name}=0"
    with pytest.raises(ClusterError, match=f"rank 1 is rank 3 by MPI, but has {name}=0; start"):
        check(["a", "a"], [Announced(), Announced(complaint=complaint)])


def test_half_set_variables_of_slurm(setenv, monkeypatch):
    setenv(STEP)
    monkeypatch.delenv("SLURM_LOCALID")
    monkeypatch.setenv("SLURM_NODEID", "")
    assert announced((3, 4)).complaint == (
        "is in a Slurm step, but has no SLURM_LOCALID, SLURM_NODEID=''"
    )


def test_alone_on_purpose_nothing_is_compared(setenv):
    setenv(STEP | {"MPISTRAT_ALLOW_SINGLETON": "1"})
    assert announced((0, 1)) == Announced()


def test_without_mpi_nothing_is_compared(setenv):
    setenv(STEP)
    assert announced(None) == Announced()


def test_one_name_for_two_nodes():
    """As in containers that all have the same host name: their ranks share no memory."""
    everyone = [Announced(0), Announced(0), Announced(1)]
    check(["a", "a", "b"], everyone)
    check(["a", "a", "a"], [Announced(), Announced(), Announced(1)])
    with pytest.raises(ClusterError) as caught:
        check(["a", "a", "a"], everyone)
    text = str(caught.value)
    assert "ranks 0 and 2 both say that their machine is 'a'" in text
    assert "on its nodes 0 and 1 (SLURM_NODEID)" in text
    assert "mpistrat doctor" in text


def test_many_complaints_are_cut_short():
    everyone = [Announced(complaint=f"has {rank}") for rank in range(1000)]
    with pytest.raises(ClusterError, match=r"rank 3 has 3, and 996 more; start") as caught:
        check(["a"] * 1000, everyone)
    assert len(str(caught.value)) < 500
    assert mpi_agreement.__doc__
