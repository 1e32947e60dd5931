"""The checks of GPUs judge recorded facts."""

import pytest

from helpers.doctor.jobs import faults, has_fault, job, judged, site
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.gpus import (
    gpu_aware_mpi,
    health,
    mpi_and_nccl,
    near_cpus,
    one_rank_each,
    peers_visible,
)
from mpistrat.doctor.checks.gpus.gpu_aware_mpi import GpuAware
from mpistrat.doctor.checks.gpus.health import Driver
from mpistrat.doctor.checks.gpus.mpi_and_nccl import Carriers
from mpistrat.doctor.gpus.driver import Gpu
from mpistrat.doctor.gpus.nvml import Health
from mpistrat.doctor.gpus.seen import Seen
from mpistrat.doctor.not_here import NotHere

NEAR = ("0-3", "4-7")
GPUS = tuple(Gpu(f"0000:0{i}:00.0", f"{i:032x}", NEAR[i]) for i in range(2))
CPUS = (frozenset(range(4)), frozenset(range(4, 8)))


@pytest.fixture(autouse=True)
def no_order(monkeypatch):
    monkeypatch.delenv("MPISTRAT_GPU_ORDER", raising=False)


def full_view(order=(0, 1)):
    """Return two ranks that see both GPUs, whose masks are near GPU `order[rank]`."""
    return [Seen(GPUS, 2, CPUS[near]) for near in order]


ISOLATED = [Seen(GPUS[:1], 2, CPUS[0]), Seen(GPUS[1:], 2, CPUS[1])]


@pytest.mark.parametrize("facts", [full_view(), ISOLATED], ids=["full view", "isolated"])
def test_a_gpu_for_each_rank(facts):
    verdict = judged(one_rank_each.CHECK, facts, job())
    assert (verdict.value, faults(verdict)) == ("2 GPUs of 1 node, each used by one rank", [])
    assert faults(judged(near_cpus.CHECK, facts, job())) == []


def test_the_same_gpu_on_two_ranks():
    facts = [Seen(GPUS[:1], 2, CPUS[0])] * 2
    verdict = judged(one_rank_each.CHECK, facts, job(kind="srun"))
    assert has_fault(verdict, Status.FAILURE, "all ranks use the GPU 0000:00:00.0")
    assert "--gpus-per-task=1" in verdict.problems[0].command


def test_the_same_address_on_two_nodes_is_two_gpus():
    facts = [Seen(GPUS[:1], 1, CPUS[0])] * 2
    assert faults(judged(one_rank_each.CHECK, facts, job(["n0", "n1"]))) == []


def test_ranks_without_a_gpu_beside_others():
    verdict = judged(one_rank_each.CHECK, [Seen(GPUS, 2), Seen(())], job())
    assert has_fault(verdict, Status.FAILURE, "ranks [1]", "can see no GPU")


def test_without_gpus_there_is_nothing_to_look_at():
    for check in (one_rank_each.CHECK, peers_visible.CHECK, near_cpus.CHECK):
        with pytest.raises(NotHere, match="no GPU"):
            judged(check, [Seen(())] * 2, job())


def test_hidden_peers(tmp_path):
    assert faults(judged(peers_visible.CHECK, full_view(), job())) == []
    verdict = judged(peers_visible.CHECK, ISOLATED, job(kind="srun"))
    assert has_fault(verdict, Status.WARNING, "sees 1 GPU of the 2", "--gpus-per-node=2")
    mode = '[binding]\nmode = { value = "isolated", source = "us" }'
    isolated = job(kind="srun", site=site(tmp_path, mode))
    assert faults(judged(peers_visible.CHECK, ISOLATED, isolated)) == []


def test_a_gpu_far_from_its_rank():
    verdict = judged(near_cpus.CHECK, full_view(order=(1, 0)), job())
    assert has_fault(verdict, Status.WARNING, "all ranks", "0000:00:00.0", "near CPUs 0-3")
    assert verdict.problems[0].command == "export MPISTRAT_GPU_ORDER=1,0"
    assert verdict.corrections == {"binding.gpu_of_local_rank": (1, 0)}


def test_no_order_is_advised_where_there_is_none():
    facts = [Seen(GPUS[:1], 2, CPUS[1]), Seen(GPUS[1:], 2, CPUS[1])]
    verdict = judged(near_cpus.CHECK, facts, job())
    assert has_fault(verdict, Status.WARNING, "rank 0 on n0")
    assert (verdict.problems[0].command, verdict.corrections) == ("", None)


# -------------------------------------------------------------------------------------- health


@pytest.mark.parametrize(
    ("driver", "status", "word"),
    [
        (Driver(18), Status.FAILURE, "NVML error 18"),
        (Driver(-1), Status.FAILURE, "libnvidia-ml.so.1 is not there"),
        (Driver(999), Status.FAILURE, "NVML error 999"),
        (Driver(0, (), "HIP's driver fails"), Status.FAILURE, "HIP's driver fails"),
        (Driver(0, (Health("b", 3, 0),)), Status.FAILURE, "3 uncorrected errors"),
        (Driver(0, (Health("b", 0, 2),)), Status.WARNING, "retired 2 pages"),
        (
            Driver(0, (Health("b", 0, 0, ("thermal slowdown by hardware",)),)),
            Status.WARNING,
            "slow",
        ),
    ],
)
def test_a_node_that_is_broken(driver, status, word):
    well = Driver(0, (Health("b", 0, 0, ("power cap",)),))
    verdict = judged(health.CHECK, [well, driver], job(["n0", "n1"]))
    assert has_fault(verdict, status, "n1: ", word, "#SBATCH --exclude=n1")
    assert len(verdict.problems) == 1
    assert faults(judged(health.CHECK, [well, well], job(["n0", "n1"]))) == []


# --------------------------------------------------------------------------------- MPI and NCCL


def test_mpi_beside_nccl():
    on = Carriers(("MPICH_GPU_SUPPORT_ENABLED",), "auto")
    verdict = judged(mpi_and_nccl.CHECK, [on, on], job())
    assert has_fault(verdict, Status.WARNING, "export MPICH_GPU_SUPPORT_ENABLED=0")
    staged = Carriers(("MPICH_GPU_SUPPORT_ENABLED",), "staged")
    for facts in ([staged] * 2, [Carriers((), "nccl")] * 2):
        assert faults(judged(mpi_and_nccl.CHECK, facts, job())) == []


def test_mpi_that_is_not_gpu_aware():
    claim = ("MPICH_GPU_SUPPORT_ENABLED=1",)
    crashed = judged(gpu_aware_mpi.CHECK, [GpuAware(claim, True, "crashed with SIGSEGV")], job())
    assert has_fault(crashed, Status.FAILURE, "SIGSEGV", "MPICH_GPU_SUPPORT_ENABLED=0")
    assert faults(judged(gpu_aware_mpi.CHECK, [GpuAware(claim, True, "")], job())) == []
    assert faults(judged(gpu_aware_mpi.CHECK, [GpuAware(())], job())) == []


def test_cray_mpich_without_its_library():
    cray = job(library="MPI VERSION : CRAY MPICH version 8.1.30")
    verdict = judged(gpu_aware_mpi.CHECK, [GpuAware(("MPICH_GPU_SUPPORT_ENABLED=1",))], cray)
    assert has_fault(verdict, Status.FAILURE, "libmpi_gtl is not loaded")
