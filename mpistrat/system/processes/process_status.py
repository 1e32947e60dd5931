"""Read what the kernel says of a process: its program, state, parent and start."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ProcessStatus", "read"]


class ProcessStatus(NamedTuple):
    """A line of ``/proc/<pid>/stat``.

    Attributes
    ----------
    name
        Of the program, in at most 15 characters.
    state
        One letter; Z and X of processes that have ended.
    parent
        The number of the parent process.
    start
        In ticks since the machine started. Numbers of processes are used again; one with its start
        is not.
    """

    name: str
    state: str
    parent: int
    start: int

    @property
    def has_ended(self) -> bool:
        """Whether it only waits for its parent to take note."""
        return self.state in "ZX"


def read(pid: int) -> ProcessStatus:
    """Return the status of a process. **Local.**

    Raises
    ------
    OSError
        There is no such process, it is hidden from this user, or this system has no ``/proc``.
    """
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        head, _, tail = file.read().rpartition(")")  # names of programs may have blanks
    fields = tail.split()
    if not fields:  # it ended between the opening and the reading
        raise ProcessLookupError(f"process {pid} has ended")
    return ProcessStatus(head.partition("(")[2], fields[0], int(fields[1]), int(fields[19]))
