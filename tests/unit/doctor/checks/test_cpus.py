"""The checks of CPUs judge recorded facts."""

import pytest

from helpers.doctor.jobs import faults, has_fault, job, judged, site
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.cpus import cpu_mask, slurm_cpus_per_task, thread_count
from mpistrat.doctor.checks.cpus.cpu_mask import Mask
from mpistrat.doctor.checks.cpus.slurm_cpus_per_task import Variables
from mpistrat.doctor.checks.cpus.thread_count import Threads

ALL = frozenset(range(8))
NUMA = (frozenset(range(4)), frozenset(range(4, 8)))


def mask(*cpus, start=None, **more):
    now = frozenset(cpus)
    return Mask(now if start is None else frozenset(start), now, ALL, **more)


def masks(*facts, **more):
    return judged(cpu_mask.CHECK, facts, job(["n0"] * len(facts), **more))


@pytest.mark.parametrize(
    "facts",
    [
        [mask(*range(8)), mask(*range(8))],  # not bound, one NUMA node
        [mask(0, 1), mask(2, 3)],
        [mask(*range(4), numa=NUMA), mask(*range(4, 8), numa=NUMA)],
        [mask(*range(8), numa=NUMA)],
    ],
)
def test_masks_that_are_well(facts):
    assert faults(masks(*facts)) == []


def test_masks_of_several_nodes_may_be_equal():
    assert faults(judged(cpu_mask.CHECK, [mask(0), mask(0)], job(["n0", "n1"]))) == []


def test_ranks_on_the_same_cores_though_others_are_free():
    verdict = masks(mask(0), mask(0))
    assert has_fault(verdict, Status.FAILURE, "all ranks", "CPUs 0; CPUs 1-7 are in no mask")


def test_masks_that_overlap():
    verdict = masks(mask(0, 1), mask(1, 2), mask(3))
    assert has_fault(verdict, Status.FAILURE, "ranks 0-1 on n0")


def test_more_ranks_than_cores():
    verdict = masks(*[mask(*range(8))] * 9)
    assert has_fault(verdict, Status.WARNING, "9 ranks of n0 share 8 CPUs")


def test_fewer_cores_than_asked_for():
    verdict = masks(mask(0, asked=4), mask(1, 2, 3, 4, asked=4), kind="srun", mpi_type="pmi2")
    assert has_fault(verdict, Status.FAILURE, "rank 0 on n0 may run on 1 CPU (0)", "4, as SLURM")
    assert "srun --mpi=pmi2 --cpus-per-task=4 --cpu-bind=cores" in verdict.problems[0].command
    by_mpirun = masks(mask(0, asked=4), mask(1, asked=4), kind="mpirun").problems[0]
    assert by_mpirun.command.startswith("mpirun --bind-to none -n 2 mpistrat doctor")
    assert "srun" not in by_mpirun.fix


def test_a_mask_that_mpi_or_an_import_narrows():
    assert has_fault(masks(mask(0, start=range(8))), Status.FAILURE, "from 0-7 to 0")
    by_import = mask(*range(8), imported=(("numpy", ALL), ("torch", frozenset({0}))))
    assert has_fault(masks(by_import), Status.FAILURE, "import torch", "from 0-7 to 0")


def test_numa_nodes():
    unbound = [mask(*range(8), numa=NUMA)] * 2
    assert has_fault(masks(*unbound), Status.WARNING, "several NUMA nodes")
    across = [mask(3, 4, numa=NUMA), mask(5, 6, numa=NUMA)]
    assert has_fault(masks(*across), Status.WARNING, "rank 0 on n0", "3-4")


def test_the_sites_map_is_what_to_type(tmp_path):
    maps = '[binding]\ncpus_of_local_rank = { value = ["0-3", "4-7"], source = "us" }'
    verdict = masks(mask(0), mask(0), kind="srun", site=site(tmp_path, maps))
    assert "--cpu-bind=mask_cpu:0xf,0xf0" in verdict.problems[0].command


# ------------------------------------------------------------------------------ CPUs per task


def per_task(slurm, *facts):
    return judged(slurm_cpus_per_task.CHECK, facts, job(["n0"] * len(facts), "srun", slurm=slurm))


@pytest.mark.parametrize(
    ("slurm", "status"), [("22.05.8", Status.WARNING), ("23.11.4", Status.FAILURE)]
)
@pytest.mark.parametrize("tres", ["cpu:8", "cpu=8", "cpu:8,gres/gpu:1"])
def test_variables_that_disagree(slurm, status, tres):
    verdict = per_task(slurm, Variables("4", tres, ""), Variables("4", "cpu:4", ""))
    assert has_fault(verdict, status, "SLURM_CPUS_PER_TASK=4", tres, "rank 0 on n0")
    assert "--cpus-per-task=4" in verdict.problems[0].command


def test_a_variable_that_slurm_no_longer_reads():
    assert has_fault(per_task("23.11.1", Variables("", "", "4")), Status.WARNING, "SRUN_CPUS")
    assert faults(per_task("22.05.8", Variables("", "", "4"))) == []
    assert faults(per_task("24.05.1", Variables("4", "cpu:4", ""))) == []


# ------------------------------------------------------------------------------------ threads


def threads(*facts):
    return judged(thread_count.CHECK, facts, job(["n0"] * len(facts)))


def test_threads_that_fit():
    assert faults(threads(Threads(4, "openblas", ALL), Threads(4, "openblas", ALL))) == []
    assert faults(threads(*[Threads(1, "openblas", frozenset({0}))] * 2)) == []


def test_more_threads_than_cores():
    verdict = threads(*[Threads(8, "OMP_NUM_THREADS", ALL)] * 2)
    assert has_fault(verdict, Status.WARNING, "2 ranks of n0 start 16 threads", "on 8 CPUs")
    assert verdict.problems[0].command == "export OMP_NUM_THREADS=4"


def test_a_quota_counts():
    verdict = threads(*[Threads(4, "openblas", ALL, quota=2.0)] * 2)
    assert has_fault(verdict, Status.WARNING, "on 2 CPUs", "export OMP_NUM_THREADS=1")
