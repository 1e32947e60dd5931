"""Srun's type of MPI fits the library of this Python, or mpirun starts the ranks."""

import sys

import pytest

from mpistrat.sites.mpi_probe import choose, probe

MPICH = "MPICH Version:      5.0.2\nMPICH Release date: 2026"
OPEN_MPI = "Open MPI v5.0.8, package: Open MPI"
INTEL = "Intel(R) MPI Library 2021.17 for Linux* OS"
CRAY = "MPI VERSION    : CRAY MPICH version 9.0.1.117 (ANL base 3.4a2)"


@pytest.mark.parametrize(
    ("library", "types", "launcher", "kind"),
    [
        (MPICH, ["pmix", "pmi2"], "srun", "pmi2"),
        (INTEL, ["cray_shasta", "pmi2"], "srun", "pmi2"),
        (OPEN_MPI, ["pmi2", "pmix"], "srun", "pmix"),
        (OPEN_MPI, ["pmi2"], "mpirun", None),
        (MPICH, ["pmix"], "mpirun", None),
        (CRAY, ["cray_shasta", "pmi2"], "srun", "cray_shasta"),
        (CRAY, ["pmi2"], "", None),
        ("FooMPI 1.0", ["pmi2"], "", None),
        ("", ["pmi2"], "", None),
    ],
)
def test_the_choice(library, types, launcher, kind):
    chosen = choose(library, types)
    assert (chosen.launcher, chosen.type) == (launcher, kind)
    assert chosen.reason


def test_open_mpi_of_pypi_is_started_by_mpirun():
    chosen = choose(OPEN_MPI, ["pmix"], is_wheel=True)
    assert chosen.launcher == "mpirun"
    assert chosen.flags == ("--map-by ppr:{tasks_per_node}:node", "--bind-to none")
    assert "PyPI" in chosen.reason


def test_without_srun_nothing_is_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe(sys.executable).launcher == ""
    assert probe(sys.executable).reason == "there is no srun here to ask"


def test_a_slurm_that_does_not_answer(monkeypatch, tmp_path):
    srun = tmp_path / "srun"
    srun.write_text(
        "#!/bin/sh\necho 'srun: fatal: Could not establish a configuration source' >&2\nexit 1\n"
    )
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert probe(sys.executable).launcher == ""
    assert "Slurm does not answer here" in probe(sys.executable).reason
