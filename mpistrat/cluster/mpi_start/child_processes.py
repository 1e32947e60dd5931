"""Refuse to start MPI in a child process of a rank, which inherits the launcher's variables.

MPI must not start in them: they would introduce themselves to the launcher as the rank that
started them, and the launcher ends the job. So a rank that runs MPI leaves a variable in its
environment, which tells its child processes whose they are. A job that a rank starts by a launcher
of its own is another matter: other variables, or a launcher between.
"""

from __future__ import annotations

import hashlib
import os
import sys

from mpistrat.cluster.launcher import launch_variables
from mpistrat.errors import ClusterError
from mpistrat.system.processes import process_status
from mpistrat.system.processes.process_status import ProcessStatus

__all__ = ["check_no_child", "is_child", "mark"]

_MARK = "MPISTRAT_RANK_PROCESS"
_LAUNCHERS = (
    *("mpirun", "mpiexec", "hydra_", "prterun", "prted", "orterun", "orted", "srun", "slurmstepd"),
    *("aprun", "palsd", "jsrun", "flux"),
)
_MOST_ANCESTORS = 64


_forked_from: list[int] = []  # a rank that ran MPI


def _note_fork() -> None:
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized():
        _forked_from[:] = [os.getppid()]


os.register_at_fork(after_in_child=_note_fork)


def mark() -> None:
    """Record that this process is a rank that runs MPI. **Local**, idempotent."""
    me = _process(os.getpid())
    if me is not None and launch_variables.was_launched():
        os.environ[_MARK] = f"{os.getpid()} {me.start} {_identity()}"


def check_no_child() -> None:
    """Refuse to start MPI in a child process of a rank. **Local.**

    Raises
    ------
    ClusterError
        This is one.
    """
    if _forked_from:
        raise ClusterError(
            f"this process (pid {os.getpid()}) was forked by a rank of the job, pid"
            f" {_forked_from[0]}, and is no rank itself: MPI does not work in it. Make strategies"
            " in the rank's own process"
        )
    if is_child():
        names = ", ".join(
            sorted({name.partition("_")[0] + "_*" for name in launch_variables.variables()})
        )
        raise ClusterError(
            f"this process (pid {os.getpid()}) was started by a rank of the job, pid"
            f" {os.environ[_MARK].split()[0]}, and is no rank itself: if it started MPI, the"
            " launcher would end the job. Make strategies in the rank's own process; to let this"
            " one run alone, start it without the launcher's variables in its environment"
            f" ({names}){_main_module()}"
        )


def _main_module() -> str:
    """Return what else to do where multiprocessing imports the rank's program again."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is None:
        return ""
    return (
        ". multiprocessing imports the program again here: put what makes strategies under `if"
        ' __name__ == "__main__":`'
    )


def is_child() -> bool:
    """Tell whether a rank that runs MPI started this process, and no launcher did since."""
    pid, _, rest = os.environ.get(_MARK, "").partition(" ")
    start, _, identity = rest.partition(" ")
    # Other variables than the rank's: a launcher has started this process since, for another job.
    if not pid.isdigit() or int(pid) == os.getpid() or identity != _identity():
        return False
    ancestor = _process(os.getpid())
    for _ in range(_MOST_ANCESTORS):
        number = 0 if ancestor is None else ancestor.parent
        ancestor = _process(number)
        if ancestor is None or ancestor.name.startswith(_LAUNCHERS):
            return False
        if number == int(pid):
            return str(ancestor.start) == start
    return False


def _identity() -> str:
    """Return a digest of the launcher's variables in this process's environment."""
    said = sorted(launch_variables.variables().items())
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def _process(pid: int) -> ProcessStatus | None:
    """Return the facts about a process; None if it does not exist or /proc is unavailable."""
    try:
        return process_status.read(pid)
    except OSError:
        return None
