"""End a rank's process where MPI_Finalize cannot: before MPI started, or if a rank is dead."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys

from mpistrat.cluster import ended_ranks
from mpistrat.cluster.launcher.launch_variables import expected_size
from mpistrat.cluster.mpi_start import child_processes, ranks_without_mpi
from mpistrat.system.program_end import exit_hooks, standard_output
from mpistrat.system.program_end.exit_hooks import Phase

__all__ = ["end_job_on_early_failure", "finalize_and_leave", "leave_at_end"]


class _Leaving:
    """Whether the process ends without MPI_Finalize."""

    is_wanted = False


_leaving = _Leaving()


def leave_at_end() -> None:
    """End this process without MPI_Finalize, which could wait for a dead rank. **Local.**

    Its program runs to its end, with all that it has registered for that.
    """
    _leaving.is_wanted = True


def finalize_and_leave() -> None:
    """End this process after MPI_Finalize, but without the interpreter's own end. **Collective.**

    For the last hooks of a program, where threads of a library would be waited for that cannot end
    any more. Standard output and error are flushed, other files are not.
    """
    ending = exit_hooks.ending
    if _mpi_is_started() and not sys.modules["mpi4py.MPI"].Is_finalized():
        sys.modules["mpi4py.MPI"].Finalize()
    standard_output.flush()
    status = ending.statuses[-1] if ending.statuses else 0
    os._exit(1 if ending.error is not None else status)


def end_job_on_early_failure() -> None:
    """End the whole job when a rank ends before MPI starts and others would wait for it.

    They may be in MPI_Init by then, without a deadline, and some launchers (MPICH's) do not mind
    a rank that exits without having started MPI. They do mind one that ends by a signal. A
    failure ends the job always, a good end only if another rank has begun to start MPI
    (:mod:`mpistrat.cluster.mpi_start.ranks_without_mpi`). After a failure between MPI's start
    and the first strategy the job is aborted: nobody could be told; an exit with status 0 there is
    recorded for the ranks of the node (:mod:`mpistrat.cluster.ended_ranks`). **Local.**
    """
    expected = expected_size()
    if expected is None or expected[1] == 1 or child_processes.is_child():
        return
    exit_hooks.watch_errors()
    exit_hooks.watch_statuses()
    exit_hooks.register(Phase.PROCESS, _end)
    os.register_at_fork(after_in_child=_look_after_forked_child)


def _look_after_forked_child() -> None:
    """Know how a child process of a rank ends, which inherits what is known of the rank."""
    exit_hooks.ending.statuses.clear()
    before = getattr(sys, "last_value", None)
    # Hooks are not called in forked children, so each has its own.
    exit_hooks.register(Phase.PROCESS, lambda: _end_forked_child(before))


def _end_forked_child(error_before: BaseException | None) -> None:
    """End a child process of a rank past MPI_Finalize, which would meet the ranks in its place.

    Its exit status is what `sys.exit` or `exit` was given, or 1 after an uncaught error. Of a
    `SystemExit` that was raised without them nobody knows here, and it counts as 0.
    """
    if not _mpi_is_started():
        return
    # The interpreter sets it for what nobody has caught, whatever sys.excepthook makes of it.
    error = getattr(sys, "last_value", None)
    statuses = exit_hooks.ending.statuses or [int(error is not error_before)]
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    for one in gc.get_objects():  # as they are flushed when the interpreter ends
        if issubclass(type(one), io.IOBase):  # not isinstance: a proxy may do anything then
            with contextlib.suppress(OSError, ValueError):  # closed, or read only
                one.flush()
    os._exit(statuses[-1])


def _end() -> None:
    ending = exit_hooks.ending
    if not _mpi_is_started():
        _end_without_mpi(is_failure=ending.error is not None or any(ending.statuses))
    elif ending.error is not None:
        standard_output.wait_until_read()
        ended_ranks.remove_file()
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(ending.status_of_job or 1)
    else:
        _end_well()


def _end_well() -> None:
    ending = exit_hooks.ending
    if not sys.modules["mpi4py.MPI"].Is_finalized():
        ended_ranks.record_exit(ending.status)
    if _leaving.is_wanted:
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
