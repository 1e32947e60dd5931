"""A wrong start is answered by the command line that is right."""

import os
import sys

import pytest

from mpistrat.cluster.launcher.advice import how_to_start

OPENMPI, MPICH, INTEL, CRAY = (
    *("Open MPI v5.0.11, package: ...", "MPICH Version:      5.0.2\nMPICH Release date: ..."),
    *("Intel(R) MPI Library 2021.18 for Linux* OS", "MPI VERSION    : CRAY MPICH version 8.1.29"),
)
PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PALS_", "MV2_", "SLURM", "FLUX_", "MPI_LOCAL")
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_NODES": "2"}
LIST = (
    "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: v4"
)


@pytest.fixture
def advice(monkeypatch, tmp_path):
    """Return a function that gives the advice in a step, and the srun of which offers some."""
    for name in [n for n in os.environ if n.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python3", "train.py", "--name", "a b"])

    def advise(library, printed=LIST, **variables):
        for item in (STEP | variables).items():
            monkeypatch.setenv(*item)
        srun = tmp_path / "srun"
        srun.write_text(f"#!/bin/sh\ncat <<END\n{printed}\nEND\n")
        srun.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return how_to_start(8, library)

    return advise


@pytest.mark.parametrize(
    ("library", "plugin"), [(OPENMPI, "pmix"), (MPICH, "pmi2"), (INTEL, "pmi2"), (CRAY, "pmi2")]
)
def test_the_plugin_of_the_library(advice, library, plugin):
    text = advice(library)
    python = os.path.basename(sys.executable)
    assert f"`srun --mpi={plugin} -N 2 -n 8 {python} train.py --name 'a b'`" in text
    assert "mpistrat doctor" in text


def test_the_best_plugin_that_there_is(advice):
    assert "srun --mpi=cray_shasta " in advice(CRAY, LIST + "\n\tcray_shasta")
    assert "srun --mpi=pmix " in advice(MPICH, "srun: MPI types are...\nsrun: none\nsrun: pmix")


def test_without_a_fitting_plugin_mpirun_is_named(advice):
    text = advice(OPENMPI, "MPI plugin types are...\n\tnone\n\tpmi2")
    assert "needs `srun --mpi=pmix` (this Slurm offers pmi2)" in text
    assert "mpirun -n 8 " in text


def test_a_plugin_that_has_failed_is_not_named_again(advice):
    text = advice(OPENMPI, SLURM_MPI_TYPE="pmix")
    assert "used pmix" in text
    assert "mpirun -n 8 " in text
    assert "srun --mpi=pmix -N" in advice(MPICH, SLURM_MPI_TYPE="pmi2")


def test_where_srun_does_not_answer(advice):
    assert "srun --mpi=pmi2 -N 2" in advice(MPICH, "what is this?")


def test_an_unknown_library(advice):
    text = advice("Some MPI 1.0")
    assert "`srun --mpi=pmi2` for MPICH and `srun --mpi=pmix` for Open MPI (this Slurm off" in text


def test_heterogeneous_jobs_are_a_case_for_doctor(advice):
    assert "heterogeneous job" in advice(MPICH, SLURM_HET_SIZE="2")


def test_mpirun_of_another_library(advice):
    text = advice(MPICH, OMPI_COMM_WORLD_RANK="0")
    assert "the mpirun that came with the MPI library of this environment (MPICH): `" in text
    assert "mpirun -n 8 " in text


def test_a_long_command_line_is_left_out(advice, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "x" * 500])
    assert "-n 8 python" in (text := advice(MPICH))
    assert "xxx" not in text
