"""Did a launcher start this process, how large did it mean the job, and is it?"""

import os
import sys
import types

import pytest

from mpistrat.cluster import mpi
from mpistrat.cluster.launcher import launch_variables
from mpistrat.errors import ClusterError

PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PALS_", "MV2_", "SLURM", "FLUX_", "ALPS_", "MPI_", "HYDI_")
SLURM_ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_NNODES": "2"}
SLURM_STEP = SLURM_ALLOCATION | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}


class FakeComm:
    def __init__(self, size):
        self.size = size


def fake_mpi(size, *, started=False):
    package, module = types.ModuleType("mpi4py"), types.ModuleType("mpi4py.MPI")
    module.COMM_WORLD, module.Intracomm = FakeComm(size), FakeComm
    # Unless the program has started it, the import does, where a launcher asks for it.
    module.Is_initialized = lambda: started or mpi.was_launched()
    module.Is_finalized = lambda: False
    package.MPI = module
    return {"mpi4py": package, "mpi4py.MPI": module}


@pytest.fixture
def setenv(monkeypatch):
    """Give the process an environment in which no launcher has left a trace, and set variables."""
    for name in [n for n in os.environ if n.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("MPISTRAT_ALLOW_SINGLETON", raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


@pytest.fixture
def install(monkeypatch):
    """Put an MPI library that sees so many ranks in the place of mpi4py."""

    def install(size, **options):
        for name, module in fake_mpi(size, **options).items():
            monkeypatch.setitem(sys.modules, name, module)

    return install


@pytest.mark.parametrize(
    ("variables", "launched", "size"),
    [
        ({}, False, None),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, True, 4),
        ({"PMI_SIZE": "3", "PMI_RANK": "1"}, True, 3),
        ({"PMI_FD": "5", "PMI_RANK": "1"}, True, None),
        ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "x"}, True, None),
        ({"MV2_COMM_WORLD_SIZE": "2"}, True, 2),
        ({"PALS_SIZE": "16", "PALS_RANKID": "0"}, True, 16),
        ({"FLUX_TASK_RANK": "0"}, True, None),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "4"}, True, 4),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "4", "PMI_SIZE": "2"}, True, 2),
        (SLURM_ALLOCATION, False, None),
        (SLURM_STEP, True, 8),
        (SLURM_STEP | {"SLURM_STEP_NUM_TASKS": "4"}, True, 4),
        (SLURM_STEP | {"OMPI_COMM_WORLD_SIZE": "2"}, True, 2),
        (SLURM_STEP | {"PMI_SIZE": "6"}, True, 6),
        (SLURM_STEP | {"SLURM_STEP_ID": "4294967290"}, False, None),  # the shell of salloc
        ({"PMI_SIZE": "many"}, True, None),
        ({"PMI_SIZE": ""}, True, None),
    ],
    ids=lambda value: "-".join(value) or "none" if isinstance(value, dict) else str(value),
)
def test_environment_of_launchers(setenv, variables, launched, size):
    setenv(variables)
    assert mpi.was_launched() is launched
    expected = mpi.expected_size()
    assert (expected and expected[1]) == size
    assert expected is None or expected[0] in variables


@pytest.mark.parametrize(
    ("variables", "rank", "local_rank", "local_size", "is_srun"),
    [
        ({}, None, None, None, False),
        ({"FLUX_TASK_RANK": "2", "FLUX_TASK_LOCAL_ID": "1"}, 2, 1, None, False),
        ({"PALS_RANKID": "2", "PALS_LOCAL_RANKID": "1", "PMIX_RANK": "2"}, 2, 1, None, False),
        ({"PMI_RANK": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, 2, 1, 2, False),
        ({"PMIX_RANK": "2"}, 2, None, None, False),
        (SLURM_STEP | {"SLURM_LOCALID": "1", "SLURM_GTIDS": "2,3,4"}, 3, 1, 3, True),
        (SLURM_STEP | {"PMI_RANK": "3", "SLURM_LOCALID": "1"}, 3, 1, None, True),
        (SLURM_STEP | {"PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.7.0"}, 3, None, None, True),
        # mpirun in a step, where Slurm's variables are those of its daemon.
        (SLURM_STEP | {"PMI_RANK": "2", "MPI_LOCALRANKID": "0"}, 2, 0, None, False),
        (SLURM_STEP | {"PMIX_RANK": "2", "PMIX_NAMESPACE": "prterun-a-7@1"}, 2, None, None, False),
        (SLURM_ALLOCATION | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, None, None, None, False),
    ],
)
def test_place_of_a_rank(setenv, variables, rank, local_rank, local_size, is_srun):
    setenv(variables)
    found = (
        launch_variables.expected_rank(),
        launch_variables.local_rank(),
        launch_variables.local_size(),
    )
    assert [one and one[1] for one in found] == [rank, local_rank, local_size]
    assert launch_variables.is_srun() is is_srun


def test_a_task_of_a_larger_step_that_lacks_its_rank_is_refused(setenv, install, monkeypatch):
    setenv(SLURM_STEP | {"SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"})
    monkeypatch.delenv("SLURM_PROCID")
    with pytest.raises(ClusterError, match=r"step \(8 tasks\), but has no SLURM_PROCID"):
        mpi.world()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert mpi.world() is None
    setenv({"SLURM_STEP_NUM_TASKS": "8", "MPISTRAT_ALLOW_SINGLETON": "1"})
    assert mpi.world() is None


def test_a_process_alone_in_an_allocation_is_told_what_to_type(setenv, monkeypatch):
    """As a notebook or an editor inside salloc is."""
    told = []
    monkeypatch.setattr(mpi, "warn_once", lambda _log, _key, text: told.append(text))
    setenv(SLURM_ALLOCATION)
    assert mpi.world() is None
    assert "has 8 tasks" in told[0]
    assert "`srun -n 8`" in told[0]
    assert "mpistrat doctor" in told[0]


def test_settings_of_pmix_alone_are_no_launcher(setenv):
    setenv({"PMIX_MCA_gds": "hash"})
    assert not mpi.was_launched()


def test_without_launcher_there_is_no_world(setenv, install):
    setenv({})
    install(1)
    assert mpi.world() is None


def test_batch_script_outside_a_step_runs_alone(setenv, install):
    setenv(SLURM_ALLOCATION)
    install(1)
    assert mpi.world() is None


def test_world_of_the_announced_size(setenv, install):
    setenv({"PMI_SIZE": "4"})
    install(4)
    assert mpi.world().size == 4


def test_world_of_a_job_that_announces_no_size(setenv, install):
    setenv({"PMIX_RANK": "0"})
    install(2)
    assert mpi.world().size == 2


def test_mpi_that_a_program_started_itself_is_used(setenv, install):
    setenv({})
    install(3, started=True)
    assert mpi.world().size == 3


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "8"}, "OMPI_COMM_WORLD_SIZE"),
        ({"PMI_SIZE": "8"}, "PMI_SIZE"),
        (SLURM_STEP, "SLURM_NTASKS"),
    ],
)
def test_silent_singletons_are_refused_with_cause_and_fix(setenv, install, variables, name):
    setenv(variables)
    install(1)
    with pytest.raises(ClusterError) as caught:
        mpi.world()
    text = str(caught.value)
    assert f"announced 8 ranks ({name}), but MPI sees 1" in text
    assert ("srun --mpi=pmi2" if "SLURM_STEP_ID" in variables else "mpirun -n 8 ") in text
    assert "mpistrat doctor" in text
    assert "MPISTRAT_ALLOW_SINGLETON=1" in text


def test_singletons_on_purpose(setenv, install):
    setenv({"PMI_SIZE": "8", "MPISTRAT_ALLOW_SINGLETON": "1"})
    install(1)
    assert mpi.world().size == 1


def test_no_mpi_library(setenv, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    setenv({"PMI_SIZE": "1"})
    assert mpi.world() is None
    setenv({"PMI_SIZE": "2"})
    with pytest.raises(ClusterError, match=r"started 2 ranks \(PMI_SIZE\).*pip install") as caught:
        mpi.world()
    assert isinstance(caught.value.__cause__, ImportError)


def test_is_mpi_comm(setenv, install):
    setenv({})
    assert not mpi.is_mpi_comm(FakeComm(2))
    install(2)
    assert mpi.is_mpi_comm(FakeComm(2))
    assert not mpi.is_mpi_comm(None)
