"""Tell the ranks of a node which programs of their job have ended, without a communicator.

A rank that exits successfully once MPI has started is gone, or waits in MPI_Finalize. If the
others make a communicator, which needs that rank, nothing in MPI tells them that it never comes.
So a rank that ends adds a line to a file of its job and node, and a rank that waits reads it.

As in ranks_without_mpi.py only ranks of one node see each other, and where anything is unknown
there is no file. The last rank removes it, or an abort; a job that is killed leaves some bytes.

Hooks that a program gave to atexit before it imported this package are called after a rank has
told. If they make a communicator, the rank takes back what it told.
"""

from __future__ import annotations

import contextlib
import os

from mpistrat.cluster.launcher.launch_variables import local_size
from mpistrat.cluster.mpi_start import ranks_without_mpi

__all__ = ["exit_statuses", "record_exit", "remove_file", "take_back"]

_MOST_NAME = 255
_NOT_ENDED = -1  # in place of an exit status


class _State:
    has_told = False


_state = _State()


def record_exit(status: int) -> None:
    """Record that the program of this rank has ended, with an exit status. **Local.**"""
    _state.has_told = True
    ended, here = ranks_without_mpi.append_state(_path(), str(status)), local_size()
    if here is not None and here[1] == len(ended):
        remove_file()  # the last rank: no other will read it


def take_back() -> None:
    """Record that the program of this rank goes on, if it has told that it ended. **Local.**"""
    path = _path()
    # No new file: the last rank has removed it, and no other will.
    if _state.has_told and path is not None and os.path.exists(path):
        ranks_without_mpi.append_state(path, str(_NOT_ENDED))
    _state.has_told = False


def exit_statuses() -> dict[int, int]:
    """Return the exit statuses of this node's programs that have ended, by rank. **Local.**"""
    try:
        with open(os.open(_path() or "", os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return {}
            found = {int(rank): int(status) for rank, status in map(bytes.split, file)}
            return {rank: status for rank, status in found.items() if status != _NOT_ENDED}
    except (OSError, ValueError):  # there is none, as nearly always
        return {}


def remove_file() -> None:
    """Remove the job's file on this node. **Local.**"""
    with contextlib.suppress(OSError):
        os.unlink(_path() or "")


def _path() -> str | None:
    path = ranks_without_mpi.state_file()
    if path is None:
        return None
    folder, name = os.path.split(path)
    return os.path.join(folder, f"mpistrat-ended-{name}"[:_MOST_NAME])
