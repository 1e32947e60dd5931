"""End a rank's process where MPI_Finalize cannot: before MPI started, or if a rank is dead."""

from __future__ import annotations

import os
import signal
import sys

from mpistrat.cluster import child_processes, ranks_without_mpi
from mpistrat.cluster.launch import expected_size
from mpistrat.system import exit_hooks, standard_output
from mpistrat.system.exit_hooks import Phase

__all__ = ["end_job_on_early_failure", "leave_at_end"]


class _Leaving:
    """Whether the process ends without MPI_Finalize."""

    is_wanted = False


_leaving = _Leaving()


def leave_at_end() -> None:
    """End this process without MPI_Finalize, which could wait for a dead rank. **Local.**

    Its program runs to its end, with all that it has registered for that.
    """
    _leaving.is_wanted = True


def end_job_on_early_failure() -> None:
    """End the whole job when a rank ends before MPI starts and others would wait for it.

    They may be in MPI_Init by then, without a deadline, and some launchers (MPICH's) do not mind
    a rank that exits without having started MPI. They do mind one that ends by a signal. A
    failure ends the job always, a good end only if another rank has begun to start MPI
    (:mod:`mpistrat.cluster.ranks_without_mpi`). After a failure between MPI's start and the first
    strategy the job is aborted: nobody could be told. **Local.**
    """
    expected = expected_size()
    if expected is None or expected[1] == 1 or child_processes.is_child():
        return
    exit_hooks.watch_errors()
    exit_hooks.watch_statuses()
    exit_hooks.register(Phase.PROCESS, _end)
    # Hooks are not called in forked children, so each has its own.
    os.register_at_fork(
        after_in_child=lambda: exit_hooks.register(Phase.PROCESS, _end_forked_child)
    )


def _end_forked_child() -> None:
    """End a child process of a rank past MPI_Finalize, which would meet the ranks in its place."""
    if _mpi_is_started():
        statuses = exit_hooks.ending.statuses
        standard_output.flush()
        # The interpreter sets it for what nobody has caught, whatever sys.excepthook makes of it.
        has_failed = hasattr(sys, "last_value")
        os._exit(statuses[-1] if statuses else int(has_failed))


def _end() -> None:
    ending = exit_hooks.ending
    if not _mpi_is_started():
        _end_without_mpi(is_failure=ending.error is not None or any(ending.statuses))
    elif ending.error is not None:
        standard_output.wait_until_read()
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(1)
    elif _leaving.is_wanted:
        standard_output.flush()
        # Past mpi4py's exit handler, which would call MPI_Finalize.
        os._exit(ending.statuses[-1] if ending.statuses else 0)


def _end_without_mpi(is_failure: bool) -> None:
    if is_failure:
        ranks_without_mpi.forget()
    elif reason := ranks_without_mpi.leave():
        sys.stderr.write(f"[mpistrat] {reason}\n")
    else:
        return
    standard_output.wait_until_read()
    # The launcher ends the job for a rank that a signal ends; a handler would prevent that.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _mpi_is_started() -> bool:
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized())
