"""Did a launcher start this process, how large did it mean the job, and is it?"""

import os
import sys
import types

import pytest

from mpistrat.cluster import mpi
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
    module.Is_initialized = lambda: started
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
        (SLURM_ALLOCATION, False, None),
        (SLURM_STEP, True, 8),
        (SLURM_STEP | {"SLURM_STEP_NUM_TASKS": "4"}, True, 4),
        (SLURM_STEP | {"OMPI_COMM_WORLD_SIZE": "2"}, True, 2),
        (SLURM_STEP | {"PMI_SIZE": "6"}, True, 6),
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
    assert "srun --mpi=pmi2" in text
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
