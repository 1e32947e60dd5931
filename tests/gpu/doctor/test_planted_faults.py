"""``mpistrat doctor`` finds wrong starts on GPUs, real or pretended, and none in a healthy job."""

import functools

import pytest

from helpers.doctor.reports import Report, examine
from helpers.gpu.devices import needs_gpus
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")
pytest.importorskip("rich")

OF_GPUS = ("gpus.one_rank_each", "gpus.peers_visible", "gpus.near_cpus", "gpus.mpi_and_nccl")


@functools.cache
def report(*visible: str, switch: str = "0") -> Report:
    """Return the report of two ranks that see these GPUs.

    NCCL gets little time, since pretended GPUs are slow: its check is not looked at here.
    """
    faults = [
        [rank, "environment", {"HIP_VISIBLE_DEVICES": gpus, "CUDA_VISIBLE_DEVICES": gpus}]
        for rank, gpus in enumerate(visible)
    ]
    environment = {"MPICH_GPU_SUPPORT_ENABLED": switch}
    return examine(faults, "--deadline", "15", environment=environment)


@takes_long()
@pytest.mark.parametrize("name", OF_GPUS)
def test_a_healthy_job(name):
    needs_gpus(2)
    assert report("0,1", "0,1").status(name) == "ok", report("0,1", "0,1").text


@takes_long()
def test_one_gpu_for_two_ranks():
    needs_gpus(1)
    assert report("0", "0").says("gpus.one_rank_each", "all ranks use the GPU")


@takes_long()
def test_ranks_that_do_not_see_each_others_gpus():
    needs_gpus(2)
    isolated = report("0", "1", switch="1")
    assert isolated.says("gpus.peers_visible", "sees 1 GPU of the 2")
    assert isolated.status("gpus.one_rank_each") == "ok"


@takes_long()
def test_gpu_aware_mpi_beside_nccl():
    needs_gpus(2)
    on = report("0", "1", switch="1")
    assert on.says("gpus.mpi_and_nccl", "export MPICH_GPU_SUPPORT_ENABLED=0")


@takes_long()
def test_mpi_that_says_it_is_gpu_aware_and_crashes():
    """MPICH's wheel knows of no GPUs, whatever the variable of Cray MPICH says."""
    needs_gpus(2)
    on = report("0", "1", switch="1")
    if "MPICH" not in on.value("launch.one_mpi_library"):
        pytest.skip("another MPI library, which may be GPU-aware")
    assert on.says("gpus.gpu_aware_mpi", "MPICH_GPU_SUPPORT_ENABLED=1, but sending 4 bytes")
