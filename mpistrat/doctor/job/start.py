"""Start MPI for the examination, unless it is certain that it would fail or split the job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mpistrat.cluster.mpi_start import ranks_without_mpi, timed_start
from mpistrat.cluster.slurm.mpi_types import library_kind
from mpistrat.doctor.here import MpiStart
from mpistrat.doctor.job.launcher import Launcher
from mpistrat.errors import ClusterError
from mpistrat.system.number_ranges import ranges

__all__ = ["doomed", "start_mpi"]


def start_mpi(
    launcher: Launcher, environment: Mapping[str, str], timeout_s: float
) -> tuple[Any, MpiStart]:
    """Return COMM_WORLD and how MPI started; None for COMM_WORLD where it did not.

    A process that no launcher started only loads the library. **Collective** over the job.
    """
    try:
        library = timed_start.load()
    except ClusterError as error:
        return None, MpiStart(problem="" if launcher.kind == "alone" else str(error))
    if launcher.kind == "alone":
        return None, MpiStart(library)
    if reason := doomed(launcher, library, environment):
        # A single task is whole without MPI: `srun --pty bash`, or a step without --mpi.
        is_whole = launcher.size == 1
        return None, MpiStart(library, int(is_whole), problem="" if is_whole else reason)
    begin = time.monotonic()
    try:
        comm = timed_start.start(timeout_s)
    except ClusterError as error:
        return None, MpiStart(library, problem=str(error))
    duration_s = time.monotonic() - begin
    if comm is None:
        return None, MpiStart(library, 0, duration_s, _late(launcher, timeout_s))
    return comm, MpiStart(library, comm.size, duration_s)


def doomed(launcher: Launcher, library: str, environment: Mapping[str, str]) -> str:
    """Return why MPI is not started at all: the library finds nothing of what it needs, or "".

    Open MPI ends the process then, MPICH and Intel MPI start a job of one rank in each process.
    """
    if launcher.kind != "srun":
        return ""
    kind = library_kind(library)
    wanted = {"Open MPI": ("PMIX_",), "MPICH": ("PMI_", "PMIX_"), "Intel MPI": ("PMI_", "PMIX_")}
    prefixes = wanted.get(kind)
    if prefixes is None or any(_is_identity(name, prefixes) for name in environment):
        return ""
    names = " or ".join(f"{prefix}*" for prefix in prefixes)
    return f"srun gave no variables {names}, by which {kind} finds its job"


def _is_identity(name: str, prefixes: tuple[str, ...]) -> bool:
    return name.startswith(prefixes) and not name.startswith("PMIX_MCA_")


def _late(launcher: Launcher, timeout_s: float) -> str:
    begun = ranks_without_mpi.begun()
    text = f"MPI_Init did not return within {timeout_s:g} s"
    if begun is None:
        return text
    if missing := [rank for rank in range(launcher.size) if rank not in begun]:
        where = "" if launcher.nodes <= 1 else ", if they are on this node"
        return f"{text}: rank {ranges(missing)} of {launcher.size} did not begin it{where}"
    return f"{text}, though all {launcher.size} ranks have begun it"
