"""Output of Slurm's commands is read: versions, types of MPI, the record of a job."""

import os
import subprocess
import sys

import pytest

from mpistrat.cluster.slurm.mpi_types import library_kind
from mpistrat.doctor.job import slurm
from mpistrat.doctor.job.launcher import library_name, of_environment
from mpistrat.doctor.job.start import doomed
from mpistrat.doctor.not_here import NotHere
from mpistrat.system.number_ranges import ranges, read_ranges

LIST_22 = """\
MPI plugin types are...
	pmix
	none
	cray_shasta
	pmi2
specific pmix plugin versions available: pmix_v3,pmix_v4
"""
LIST_20 = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n"
RECORD = (
    "JobId=5 JobName=a job UserId=me(1) Requeue=1 TimeLimit=00:10:00 EndTime=2026-11-25T21:40:14"
    " TresPerNode=gres:gpu:4 Power=\n"
)
CONFIGURATION = """\
Configuration data as of 2026-11-25T21:00:00
KillWait                = 30 sec
MpiDefault              = none

Slurmctld(primary) at host is UP
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Let each test ask anew, and find commands of its own first."""
    for name in ("version", "configuration", "mpi_types", "job_record", "batch_script"):
        monkeypatch.setattr(slurm, name, slurm._once(getattr(slurm, name).__wrapped__))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def command(folder, name, text, status=0, sleep=""):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{sleep}\ncat <<'END'\n{text}END\nexit {status}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (LIST_22, ("pmix", "none", "cray_shasta", "pmi2", "pmix_v3", "pmix_v4")),
        (LIST_20, ("none", "pmi2")),
    ],
)
def test_types_of_mpi(fresh, text, types):
    command(fresh, "srun", text)
    assert slurm.mpi_types() == types


def test_version_and_configuration(fresh):
    command(fresh, "scontrol", CONFIGURATION)
    assert slurm.configuration() == {"KillWait": "30 sec", "MpiDefault": "none"}
    command(fresh, "scontrol", "slurm-wlm 22.05.8\n")
    assert slurm.version() == "22.05.8"
    assert slurm.parsed_version("slurm 23.11.10-1") == "23.11.10"


def test_the_record_of_a_job(fresh, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    command(fresh, "scontrol", RECORD)
    record = slurm.job_record()
    assert record["JobName"] == "a job"
    assert (record["TresPerNode"], record["Power"]) == ("gres:gpu:4", "")


def test_a_command_that_fails_is_asked_once(fresh):
    command(fresh, "scontrol", "", status=1)
    with pytest.raises(NotHere, match="scontrol fails: exit status 1"):
        slurm.configuration()
    command(fresh, "scontrol", CONFIGURATION)
    with pytest.raises(NotHere):
        slurm.configuration()


def test_a_command_that_hangs(fresh):
    command(fresh, "scontrol", "", sleep="exec sleep 20")
    with pytest.raises(NotHere, match=r"did not answer within 0\.2 s"):
        slurm.answer(["scontrol", "show", "config"], timeout_s=0.2)


def test_a_command_that_is_not_there():
    with pytest.raises(NotHere, match="no nonsuch"):
        slurm.answer(["nonsuch"])


# ------------------------------------------------------------------------- launcher and library


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ("", "alone"),
        ("SLURM_JOB_ID SLURM_NTASKS", "alone"),
        ("SLURM_STEP_ID PMI_RANK", "srun"),
        ("SLURM_STEP_ID PMI_RANK MPI_LOCALNRANKS", "mpirun"),
        ("OMPI_COMM_WORLD_SIZE PMIX_RANK", "mpirun"),
        ("PALS_RANKID PMI_RANK", "mpiexec"),
        ("FLUX_TASK_RANK", "flux"),
        ("PMI_RANK", "unknown"),
    ],
)
def test_launchers(names, kind):
    assert of_environment(dict.fromkeys(names.split(), "1")).kind == kind


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("MPICH Version: 5.0.2 MPICH Release", "MPICH", "MPICH 5.0.2"),
        ("Open MPI v5.0.11, package: x", "Open MPI", "Open MPI 5.0.11"),
        ("Intel(R) MPI Library 2021.18 for Linux", "Intel MPI", "Intel MPI 2021.18"),
        ("MPI VERSION : CRAY MPICH version 8.1.30", "Cray MPICH", "Cray MPICH"),
        ("Another MPI", "", "Another MPI"),
    ],
)
def test_libraries(text, kind, name):
    assert (library_kind(text), library_name(text)) == (kind, name)


def test_mpi_is_not_started_where_it_would_end_the_process():
    srun = of_environment({"SLURM_STEP_ID": "0"}, ("SLURM_STEP_NUM_TASKS", 2))
    assert "PMIX_*" in doomed(srun, "Open MPI v5.0.11", {"PMI_RANK": "0", "PMIX_MCA_psec": "x"})
    assert not doomed(srun, "Open MPI v5.0.11", {"PMIX_RANK": "0"})
    assert "PMI_*" in doomed(srun, "MPICH Version: 5.0.2", {})
    assert not doomed(srun, "CRAY MPICH version 8", {})
    assert not doomed(of_environment({}), "MPICH Version: 5.0.2", {})


def test_a_single_task_without_pmi_is_whole():
    """As in the shell of `srun --pty`: Open MPI would end the process in MPI_Init."""
    program = """
import sys
from mpistrat.doctor.job.launcher import Launcher
from mpistrat.doctor.job.start import start_mpi
comm, start = start_mpi(Launcher("srun", 1, "SLURM_STEP_NUM_TASKS"), {}, 5.0)
print(comm, start.size, repr(start.problem), sys.modules["mpi4py.MPI"].Is_initialized())
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.split() == ["None", "1", "''", "False"]


def test_ranges():
    assert ranges([3, 0, 1, 2, 8]) == "0-3, 8"
    assert read_ranges("0-3, 8\n") == {0, 1, 2, 3, 8}
    assert (ranges([]), read_ranges("")) == ("", frozenset())
