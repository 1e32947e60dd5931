"""Check that GPU-aware MPI is not on where NCCL carries the arrays of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Verdict, warning
from mpistrat.doctor.gpus.driver import usable
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job

__all__ = ["CHECK", "Carriers", "judge"]

_SWITCHES = ("MPICH_GPU_SUPPORT_ENABLED", "MPIR_CVAR_ENABLE_GPU", "MV2_USE_CUDA")


@dataclass(frozen=True)
class Carriers:
    """The switches of GPU-aware MPI that are on, and MPISTRAT_GPU_CARRIER."""

    switches: tuple[str, ...]
    carrier: str


def _measure(here: Here) -> Carriers:
    usable()
    switches = [name for name in _SWITCHES if here.environment.get(name) == "1"]
    return Carriers(tuple(switches), here.environment.get("MPISTRAT_GPU_CARRIER", "") or "auto")


def judge(facts: Mapping[int, Carriers], job: Job) -> Verdict:
    """Find ranks where both are on."""
    both = [r for r, c in facts.items() if c.switches and c.carrier in ("auto", "nccl")]
    first = facts[min(facts)]
    if not both:
        on = ", ".join(f"{name}=1" for name in first.switches) or "GPU-aware MPI is not asked for"
        return Verdict(f"{on}; MPISTRAT_GPU_CARRIER is {first.carrier}")
    name = facts[both[0]].switches[0]
    return Verdict(
        f"{name}=1, and NCCL carries arrays",
        problems=(
            warning(
                f"{name}=1 on {job.who(both)}, and MPISTRAT_GPU_CARRIER is"
                f" {facts[both[0]].carrier}",
                f"{name}=0: operations of both on one GPU can wait for each other for ever",
                "mpistrat sends arrays of GPUs by NCCL, and needs no GPU-aware MPI",
                f"export {name}=0",
            ),
        ),
    )


CHECK = Check(
    name="gpus.mpi_and_nccl",
    title="MPI beside NCCL",
    source="NVIDIA/nccl#195; CSCS, cray-mpich.md",
    measure=_measure,
    judge=judge,
)
