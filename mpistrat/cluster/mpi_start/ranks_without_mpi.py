"""Detect ranks that end without starting MPI, which would block MPI_Init on the others.

MPI_Init waits for all ranks without a deadline, and no Python code runs meanwhile. Launchers do
not mind a rank that ends with exit status 0 before, since a program may do so on all ranks
(``--help``). So a rank that is about to start MPI, or ends without having done so, first adds a
line to a file of its job and node, then reads the others' lines: of two ranks, the one that comes
second sees the first, and ends the job with a reason.

Only ranks of one node see each other, and only those that the launcher started itself: programs
that a rank or a script around it starts may come and go. Where anything is unknown there is no
file, and nobody is stopped. The file is removed once MPI runs or all have left; a job that is
killed in between leaves some bytes behind.
"""

from __future__ import annotations

import contextlib
import os

from mpistrat.cluster.launcher.launch_variables import expected_rank, expected_size, local_size
from mpistrat.errors import ClusterError
from mpistrat.system.processes import process_status

__all__ = ["append_state", "begun", "forget", "launcher", "leave", "start", "state_file"]

# Read at import, since a fork, or the end of the launcher, changes them.
_OWNER, _PARENT = os.getpid(), os.getppid()
_JOB_VARIABLES = ("PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID", "SLURM_JOB_ID", "SLURM_STEP_ID")
_HYDRA_VARIABLES = ("PMI_FD", "PMI_PORT")  # it names no job, but starts its ranks by one process
# Of MPI_Comm_spawn: hydra starts these by the same process, with the numbers of other ranks.
_HYDRA_SPAWNED = "PMI_SPAWNED"
_STARTS, _LEFT = "starts", "left"


def start() -> None:
    """Record that this rank is about to start MPI. **Local.**

    Raises
    ------
    ClusterError
        A rank of this node has ended without MPI, so MPI could never start.
    """
    left = [rank for rank, state in append_state(state_file(), _STARTS).items() if state == _LEFT]
    if left:
        raise ClusterError(
            f"{_me()} cannot start MPI: {_names(left)} ended before starting it; make the first"
            " strategy on all ranks, or on none"
        )


def leave() -> str | None:
    """Record that this rank ends without MPI. **Local.**

    Returns
    -------
    str or None
        If others wait for it in MPI_Init: why the job cannot go on.
    """
    states = append_state(state_file(), _LEFT)
    waiting = [rank for rank, state in states.items() if state == _STARTS]
    if waiting:
        return (
            f"{_me()} ended before starting MPI, but {_names(waiting)} cannot start it without"
            " this one, so the job ends; make the first strategy on all ranks, or on none"
        )
    if (here := local_size()) is not None and here[1] == len(states):
        forget()  # the last rank: no other will read it
    return None


def begun() -> list[int] | None:
    """Return the ranks of this node that have begun to start MPI; None if unknown. **Local.**"""
    path = state_file()
    try:
        with open(path or "", encoding="utf-8") as file:
            return sorted({int(line.split()[0]) for line in file if line.strip()})
    except (OSError, ValueError):
        return None


def forget() -> None:
    """Remove the job's file once MPI runs or the job ends. **Local.**"""
    path = state_file()
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def append_state(path: str | None, state: str) -> dict[int, str]:
    """Append this rank's state to a file of the job; return the last state of each rank in it."""
    me = expected_rank()
    if path is None or me is None or _is_rank(_PARENT, me[0]):
        return {}
    # The folder is for all users: never follow a link that somebody else has put there.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return {}
            file.write(f"{me[1]} {state}\n".encode())  # in one piece, at the end: O_APPEND
            file.seek(0)
            lines = [line.split() for line in file.readall().decode().splitlines()]
            return {int(rank): state for rank, state in lines}
    except (OSError, ValueError):  # it must not keep anyone from starting or ending
        return {}


def launcher() -> int | None:
    """Return the process that started the ranks of this node; None if it is not certain."""
    me = expected_rank()
    return None if state_file() is None or me is None or _is_rank(_PARENT, me[0]) else _PARENT


def state_file() -> str | None:
    """Return the file of this job's ranks on this node; None if it is not certain."""
    if os.getpid() != _OWNER or _PARENT == 1:  # a forked child; an orphan
        return None
    job = [os.environ[name] for name in _JOB_VARIABLES if name in os.environ]
    if not job and not any(name in os.environ for name in _HYDRA_VARIABLES):
        return None
    if _HYDRA_SPAWNED in os.environ:
        return None
    try:
        start = process_status.read(_PARENT).start  # numbers of processes are used again
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
    facts = "-".join([*job, str(os.getuid()), str(_PARENT), str(start), namespace])
    name = "".join(c if c.isalnum() else "-" for c in facts)
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"mpistrat-{name}"[:255])


def _is_rank(pid: int, variable: str) -> bool:
    """Tell whether a process was started with `variable`: it is a rank or a script around one."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"\0{variable}=".encode() in b"\0" + file.read()
    except OSError:
        return False  # a launcher may be another user's, a rank's own parent may not


def _me() -> str:
    rank, size = expected_rank(), expected_size()
    return f"rank {rank[1] if rank else '?'}/{size[1] if size else '?'}"


def _names(ranks: list[int]) -> str:
    names = ", ".join(map(str, sorted(ranks)))
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"
