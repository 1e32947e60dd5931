"""Start MPI under a deadline: for a program that reports what MPI itself cannot.

MPI_Init waits for all ranks without a deadline, and mpi4py calls it with Python's lock held, so
that no Python code runs meanwhile. Here a thread calls it in the library that mpi4py has loaded,
without that lock, and the caller waits for the thread. Strategies start MPI by
:mod:`mpistrat.cluster.mpi`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from mpistrat.cluster.mpi_start import child_processes, mpich_of_pypi, ranks_without_mpi
from mpistrat.errors import ClusterError

__all__ = ["abort", "finish", "library", "load", "loaded_libraries", "start"]

_MULTIPLE = 3  # MPI_THREAD_MULTIPLE, in all libraries
_MAPS = Path("/proc/self/maps")


def load() -> str:
    """Load the MPI library without starting it; return its version text. **Local.**

    Raises
    ------
    ClusterError
        There is no mpi4py, or it finds no MPI library.
    """
    if "mpi4py.MPI" not in sys.modules:
        try:
            import mpi4py

            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
        except ImportError as error:
            raise ClusterError(f"mpi4py cannot be loaded: {error}") from error
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ClusterError(f"the MPI library cannot be loaded: {error}") from error
    return " ".join(MPI.Get_library_version().rstrip("\0").split())


def start(timeout_s: float) -> Any:
    """Call MPI_Init_thread; return COMM_WORLD, or None where that takes longer than `timeout_s`.

    **Collective** over the job, after :func:`load`. After None MPI cannot be used, and the process
    has to end by ``os._exit``.

    Raises
    ------
    ClusterError
        MPI_Init_thread failed, or another rank of this node has ended already, or this is a child
        process of a rank.
    """
    child_processes.check_no_child()
    ranks_without_mpi.start()
    MPI = sys.modules["mpi4py.MPI"]  # noqa: N806 - its name
    if not MPI.Is_initialized():
        mpich_of_pypi.prepare()
        status = _in_thread(_init, timeout_s)
        if status is None:
            return None
        if status:
            raise ClusterError(f"MPI_Init_thread failed with error code {status}")
        # As mpi4py does after it has called MPI_Init: errors are exceptions.
        MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    ranks_without_mpi.forget()
    child_processes.mark()
    return MPI.COMM_WORLD


def finish(timeout_s: float) -> bool:
    """Call MPI_Finalize; return whether it returned within `timeout_s`. **Collective.**"""
    return _in_thread(lambda: int(library().MPI_Finalize()), timeout_s) == 0


def abort(code: int) -> None:
    """End all ranks of the job, where some of them do not answer. **Local.**"""
    sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)


def library() -> ctypes.CDLL:
    """Return the MPI library that mpi4py calls; ctypes lets other threads run during calls.

    Another one may be loaded as well. Its functions are looked up as for mpi4py: in the program
    and what is preloaded, then in what the module needs, or in itself where it is linked with an
    archive.
    """
    program = ctypes.CDLL(None)
    if hasattr(program, "MPI_Init_thread"):
        return program
    return ctypes.CDLL(sys.modules["mpi4py.MPI"].__file__)


def loaded_libraries(names: Collection[str]) -> list[Path]:
    """Return the shared libraries of this process whose names begin so: ``["libmpi"]``."""
    paths = {line.split(maxsplit=5)[-1].strip() for line in _MAPS.read_text().splitlines()}
    found = [Path(path) for path in paths if path.startswith("/") and ".so" in path]
    return sorted(path for path in found if path.name.startswith(tuple(names)))


def _init() -> int:
    provided = ctypes.c_int()
    return int(library().MPI_Init_thread(None, None, _MULTIPLE, ctypes.byref(provided)))


def _in_thread(call: Callable[[], int], timeout_s: float) -> int | None:
    """Return what `call` returns, or None if it has not by then; the thread is left behind."""
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answers[0] if answers else None
