"""Check that an MPI that says it is GPU-aware can send an array that is on a GPU."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.cluster.mpi_start import timed_start
from mpistrat.cluster.slurm.mpi_types import library_kind
from mpistrat.doctor.check import Check, Verdict, Where, failure
from mpistrat.doctor.gpus.driver import usable
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value

__all__ = ["CHECK", "GpuAware", "judge"]

_SWITCHES = ("MPICH_GPU_SUPPORT_ENABLED", "MPIR_CVAR_ENABLE_GPU", "MV2_USE_CUDA")
_IDENTITY = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "PALS_", "FLUX_", "MPI_LOCAL", "SLURM_")
_TRIAL_S = 4.0
# Sends four bytes from a GPU to this very process.
_TRIAL = """
import cupy
from mpi4py import MPI
sent, received = cupy.arange(4, dtype="u1"), cupy.zeros(4, "u1")
cupy.cuda.get_current_stream().synchronize()
MPI.COMM_SELF.Sendrecv(sent, 0, recvbuf=received, source=0)
assert received.tolist() == [0, 1, 2, 3], received
"""


@dataclass(frozen=True)
class GpuAware:
    """What a node's MPI says of GPUs, and what it does.

    Attributes
    ----------
    claims
        The variables and functions that say so.
    has_gtl
        Whether Cray MPICH's library for GPUs (libmpi_gtl) is loaded.
    trial
        "" if an array was sent; else what happened. None where it was not tried.
    """

    claims: tuple[str, ...]
    has_gtl: bool = False
    trial: str | None = None


def _measure(here: Here) -> GpuAware:
    usable()
    claims = [f"{name}=1" for name in _SWITCHES if here.environment.get(name) == "1"]
    claims += _functions_that_claim()
    can_try = claims and importlib.util.find_spec("cupy") is not None
    has_gtl = bool(timed_start.loaded_libraries(["libmpi_gtl"]))
    return GpuAware(tuple(claims), has_gtl, _try() if can_try else None)


def _functions_that_claim() -> list[str]:
    """Ask the MPI library by the extensions that Open MPI and MPICH have."""
    mpi = timed_start.library()
    names = ("MPIX_Query_cuda_support", "MPIX_Query_rocm_support")
    return [f"{name}()=1" for name in names if hasattr(mpi, name) and getattr(mpi, name)() == 1]


def _try() -> str:
    """Send an array of a GPU in a child process, since a library that cannot may crash."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith(_IDENTITY)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL],
            env=kept,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRIAL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {_TRIAL_S:g} s"
    if done.returncode < 0:
        return f"crashed with {signal.Signals(-done.returncode).name}"
    last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    return last[0] if done.returncode else ""


def judge(facts: Mapping[int, GpuAware], job: Job) -> Verdict:
    """Compare what MPI says with what it does."""
    problems = []
    for aware, ranks in by_value(facts).items():
        claim = ", ".join(aware.claims)
        if aware.claims and aware.trial:
            problems.append(
                failure(
                    f"{job.who(ranks)}: {claim}, but sending 4 bytes from a GPU {aware.trial}",
                    "an MPI library that sends arrays of GPUs, or does not say so",
                    "turn it off, or build mpi4py with the accelerator's module loaded",
                    "export MPICH_GPU_SUPPORT_ENABLED=0",
                )
            )
        elif aware.claims and library_kind(job.library) == "Cray MPICH" and not aware.has_gtl:
            problems.append(
                failure(
                    f"{job.who(ranks)}: {claim}, but libmpi_gtl is not loaded",
                    "Cray MPICH with its library for GPUs: it ends programs at MPI_Init otherwise",
                    "load the accelerator's module before building mpi4py, or turn it off",
                    "export MPICH_GPU_SUPPORT_ENABLED=0",
                )
            )
    first = facts[min(facts)]
    value = f"{', '.join(first.claims)}: it sends arrays of GPUs" if first.claims else ""
    if first.claims and first.trial is None:
        value = f"{', '.join(first.claims)}; not tried, without CuPy"
    return Verdict(value or "MPI does not say that it is GPU-aware", problems=tuple(problems))


CHECK = Check(
    name="gpus.gpu_aware_mpi",
    title="GPU-aware MPI",
    source="CSCS, cray-mpich.md; mpi4py/mpi4py#115",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_OF_NODE,
)
