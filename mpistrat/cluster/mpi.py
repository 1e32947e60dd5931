"""Start MPI, and check that COMM_WORLD has as many ranks as the launcher announced."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from mpistrat import config
from mpistrat.cluster import ended_ranks
from mpistrat.cluster.launcher.advice import how_to_start
from mpistrat.cluster.launcher.launch_variables import expected_size, was_launched
from mpistrat.cluster.mpi_start import (
    child_processes,
    mpich_of_pypi,
    ranks_without_mpi,
    start_watch,
)
from mpistrat.cluster.slurm import step
from mpistrat.errors import ClusterError
from mpistrat.system.log import get_logger, warn_once

__all__ = [
    "abort",
    "before_finalize",
    "expected_size",
    "is_mpi_comm",
    "is_null",
    "is_over",
    "outlives_ranks",
    "was_launched",
    "why_unusable",
    "world",
    "world_place",
    "world_ranks",
]

_NOT_INITIALIZED = (
    "MPI is not initialized, since mpi4py.rc.initialize is False: leave that out, or call"
    " MPI.Init_thread() first"
)
_FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # set by mpirun --with-ft ulfm for its ranks


def world() -> Any:
    """Start MPI if a launcher asked for it, and return COMM_WORLD.

    Returns
    -------
    mpi4py.MPI.Intracomm or None
        None if no launcher started this process: it runs alone.

    Raises
    ------
    ClusterError
        The launcher meant a job of several ranks, but MPI is missing or sees a smaller one, or a
        rank has ended already; its variables are incomplete; the library cannot talk to
        it; or this is a child process of a rank.
    """
    if not was_launched() and not _is_started():
        _check_step()
        _note_allocation()
        return None
    child_processes.check_no_child()
    expected = expected_size()
    _check_starts()
    is_first = "mpi4py.MPI" not in sys.modules and not config.allows_singleton()
    if is_first and expected is not None and expected[1] > 1:
        # Before the import, which would wait for a rank that has ended without MPI.
        ranks_without_mpi.start()
    if "mpi4py.MPI" not in sys.modules:
        mpich_of_pypi.prepare()
    try:
        with start_watch.watched() if is_first else nullcontext():
            from mpi4py import MPI  # starts MPI, which waits for all ranks
    except (ImportError, RuntimeError) as error:
        if expected is None or expected[1] == 1:
            return None
        raise ClusterError(
            f"the launcher started {expected[1]} ranks ({expected[0]}), but MPI cannot be loaded:"
            f" {error}; install an MPI library, e.g. pip install 'mpistrat[mpich]'"
        ) from error
    if is_first:
        ranks_without_mpi.forget()
    if problem := why_unusable(MPI):
        raise ClusterError(problem)
    _check_size(MPI, expected)
    child_processes.mark()
    return MPI.COMM_WORLD


def why_unusable(module: Any) -> str | None:
    """Return why no call of MPI may be made, which would end the process; or None. **Local.**"""
    if module.Is_finalized():
        return (
            "MPI was finalized, after which nothing can use it: leave MPI.Finalize() to mpi4py,"
            " which calls it at the end of the program"
        )
    if not module.Is_initialized():
        return _NOT_INITIALIZED
    return None


def _check_starts() -> None:
    """Refuse a program in which the import of MPI would not start it, before ranks wait for it."""
    try:
        import mpi4py
    except ImportError:
        return  # which is told where MPI is needed
    if "mpi4py.MPI" not in sys.modules and not getattr(mpi4py.rc, "initialize", True):
        raise ClusterError(_NOT_INITIALIZED)


def is_over() -> bool:
    """Tell whether MPI was finalized. **Local.**"""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_finalized())


def world_place() -> tuple[int, int] | None:
    """Return this rank in COMM_WORLD and its size; None if MPI has not started. **Local.**"""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or why_unusable(module):
        return None
    return int(module.COMM_WORLD.rank), int(module.COMM_WORLD.size)


def world_ranks(comm: Any) -> list[int] | None:
    """Return the rank in COMM_WORLD of each rank of an mpi4py communicator. **Local.**

    None if it has processes of another COMM_WORLD.
    """
    module = sys.modules["mpi4py.MPI"]
    own, world = comm.Get_group(), module.COMM_WORLD.Get_group()
    try:
        found: list[int] = own.Translate_ranks(None, world)
    finally:
        own.Free()
        world.Free()
    return None if module.UNDEFINED in found else found


def _check_step() -> None:
    """Refuse a task of a larger Slurm step that does not know which one it is."""
    missing, tasks = step.missing(), os.environ.get(step.SIZE_VARIABLES[0], "")
    if missing and tasks != "1" and not config.allows_singleton():
        raise ClusterError(
            f"this is a task of a Slurm step ({tasks or 'an unknown number of'} tasks), but has"
            f" {step.values(missing)}; start the program by srun, and let no script set or unset"
            " its variables. To run alone on purpose, set MPISTRAT_ALLOW_SINGLETON=1"
        )


def _note_allocation() -> None:
    """Warn about a single process inside a Slurm allocation of several tasks."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    if tasks.isdecimal() and int(tasks) > 1:
        warn_once(
            get_logger(__name__),
            "alone in an allocation",
            f"this Slurm allocation has {tasks} tasks, but this process was started alone, as by a"
            " batch script, a notebook or an editor, and runs as one rank; start the program with"
            f" `srun -n {tasks}` or mpirun to use them all; `mpistrat doctor` names the options"
            " for this site",
        )


def _is_started() -> bool:
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and not why_unusable(module) and module.COMM_WORLD.size > 1


def _check_size(module: Any, expected: tuple[str, int] | None) -> None:
    """Refuse a world of one rank where the launcher announced more (singletons)."""
    size = module.COMM_WORLD.size
    if expected is None or expected[1] <= size or config.allows_singleton():
        return
    library = str(getattr(module, "Get_library_version", str)())
    raise ClusterError(
        f"the launcher announced {expected[1]} ranks ({expected[0]}), but MPI sees {size}: the"
        " ranks run apart from each other, because launcher and MPI library do not belong"
        f" together; {how_to_start(expected[1], library)}. To run alone on purpose, set"
        " MPISTRAT_ALLOW_SINGLETON=1"
    )


def before_finalize(run: Callable[[], object]) -> None:
    """Call `run` when the program calls MPI.Finalize(), while MPI still works. **Local.**

    Without effect where mpi4py itself ends MPI, after Python has ended.
    """
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and why_unusable(module) is None:
        # MPI deletes the attributes of this communicator first of all (MPI 5.0, section 11.2.4).
        key = module.Comm.Create_keyval(delete_fn=lambda *_: run())
        module.COMM_SELF.Set_attr(key, None)


def is_mpi_comm(comm: Any) -> bool:
    """Tell whether `comm` is an mpi4py intra-communicator. **Local.**"""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and isinstance(comm, module.Intracomm)


def is_null(comm: Any) -> bool:
    """Tell whether `comm` is mpi4py's communicator of no ranks, or was freed. **Local.**"""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and isinstance(comm, module.Comm) and not comm


def outlives_ranks() -> bool:
    """Tell whether the job goes on when a rank dies: Open MPI's ``mpirun --with-ft ulfm``."""
    return os.environ.get(_FAULT_TOLERANT, "") == "1"


def abort(code: int) -> None:
    """End all processes of the job. **Local.**"""
    ended_ranks.remove_file()
    module = sys.modules["mpi4py.MPI"]
    module.COMM_WORLD.Abort(code)
