"""The program on each rank of an `MpiJob`: take a task, run it, meet the others, again.

Run as ``python -m mpistrat.testing.worker <spool> <ranks>`` by :mod:`mpistrat.testing.job`.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import traceback
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpistrat.system.waiting import wait_until
from mpistrat.testing.launching.rank import rank_from_environment
from mpistrat.testing.tasks import spool
from mpistrat.testing.tasks.importing import load_test_module
from mpistrat.testing.tasks.spool import Outcome, Task

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["main"]


def _start_mpi(ranks: int) -> MPI.Intracomm:
    """Return a private duplicate of COMM_WORLD, after a check that it is the whole job."""
    from mpi4py import MPI

    if ranks != MPI.COMM_WORLD.size:
        raise RuntimeError(
            f"mpirun started {ranks} ranks, but COMM_WORLD has {MPI.COMM_WORLD.size}: mpi4py "
            f"loaded {MPI.Get_library_version().splitlines()[0]!r}, which is not the library of "
            "this mpirun; use the mpirun of that library, or a clean environment with one MPI"
        )
    # Barriers on a duplicate never match what a test has left unfinished on COMM_WORLD.
    return MPI.COMM_WORLD.Dup()


def _bind(task: Task, place: Any) -> Any:
    """Return the task's function in its module, bound to a new instance if it is a method."""
    *classes, name = task.qualname.split(".")
    for part in classes:
        place = getattr(place, part)
    return getattr(place() if classes else place, name)


def _skip_exceptions() -> tuple[type[BaseException], ...]:
    pytest = sys.modules.get("pytest")
    return (unittest.SkipTest, pytest.skip.Exception) if pytest else (unittest.SkipTest,)


def _run(task: Task) -> Outcome:
    """Run a task; whatever it raises becomes its outcome."""
    try:
        # As pytest's, which may have changed since the last task; the list object stays.
        sys.path[:] = task.sys_path
        module = load_test_module(task.module, Path(task.file))
        if task.qualname:
            _bind(task, module)(**pickle.loads(task.kwargs))
    except BaseException as error:  # noqa: BLE001 - SystemExit and pytest's outcomes too
        if isinstance(error, _skip_exceptions()):
            return Outcome("skipped", str(error))
        frames = error.__traceback__.tb_next if error.__traceback__ else None  # without this one
        text = "".join(traceback.format_exception(type(error), error, frames))
        return Outcome("failed", text)
    finally:
        # Before the outcome is told: pytest then reads the files to their end.
        sys.stdout.flush()
        sys.stderr.flush()
    return Outcome("passed")


def _meet(comm: MPI.Intracomm, timeout_s: float) -> Outcome:
    """Wait for all ranks without keeping the core busy: MPI must still work after the test."""
    try:
        if not wait_until(comm.Ibarrier().Test, timeout_s, spool.pauses()):
            return Outcome("failed", f"barrier after the test: not all ranks in {timeout_s} s")
    except Exception:  # noqa: BLE001 - whatever MPI raises belongs in the report
        return Outcome("failed", "barrier after the test:\n" + traceback.format_exc())
    return Outcome("passed")


def main(folder: Path, ranks: int) -> None:
    """Serve tasks until the job is told to end.

    Parameters
    ----------
    folder
        The spool.
    ranks
        Number of ranks that mpirun was asked for.
    """
    rank = rank_from_environment()
    try:
        comm = _start_mpi(ranks)
    except Exception:  # the parent shows it
        spool.put(spool.ready_file(folder, rank), Outcome("failed", traceback.format_exc()))
        raise
    spool.put(spool.ready_file(folder, rank), Outcome("passed"))
    number = 1
    while (task := spool.wait_for(spool.task_file(folder, number))) is not None:
        # The outcome before the barrier: it is known then, even if another rank never comes.
        spool.put(spool.body_file(folder, number, rank), _run(task))
        spool.put(spool.done_file(folder, number, rank), _meet(comm, task.timeout_s))
        number += 1
    comm.Free()
    if "tensorflow" in sys.modules:
        _leave_at_once()


def _leave_at_once() -> None:
    """End as Python would, without freeing each object: TensorFlow's take 3 s."""
    from mpi4py import MPI

    # First, as Python does: hooks of the package still use MPI.
    atexit._run_exitfuncs()
    if not MPI.Is_finalized():
        MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    # mpirun takes a rank that ends without MPI_Finalize for one that has failed: it was called
    # above.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
