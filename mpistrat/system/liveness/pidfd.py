"""Watch processes of this machine by pidfd: the kernel tells of an end within milliseconds."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from mpistrat.system.liveness.probe import Probe

__all__ = ["PidfdProbe", "Process", "is_readable", "opened"]

_POLL_ENDS_S = 1.0  # much longer than a poll that does not wait


@dataclass(frozen=True)
class Process:
    """A rank's process: its number, and the namespace in which it has that number."""

    pid: int
    namespace: str

    @classmethod
    def current(cls) -> Process:
        """Return this one; its namespace is empty if the system does not tell."""
        try:
            return cls(os.getpid(), os.readlink("/proc/self/ns/pid"))
        except OSError:
            return cls(os.getpid(), "")


def opened(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends, or None. **Local.**

    None where the kernel has no such thing (before Linux 5.3) or does not allow it.

    Raises
    ------
    ProcessLookupError
        It has ended already.
    """
    try:
        return os.pidfd_open(pid)
    # It is an OSError, which the next clause takes for a missing feature.
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def is_readable(descriptor: int) -> bool:
    """Tell whether the process of a descriptor has ended. **Local**, never blocks."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class PidfdProbe(Probe):
    """A probe of ranks on this machine.

    A peer in another PID namespace, where its number means another process, is not watched; nor
    is any where the kernel has no pidfd.

    Parameters
    ----------
    processes
        Of all ranks.
    rank
        This one.
    """

    def __init__(self, processes: Sequence[Process], rank: int) -> None:
        self._ranks: dict[int, int] = {}  # by descriptor
        self._poll = select.poll()
        self._lock = threading.Lock()
        self._ended: set[int] = set()
        for peer, process in enumerate(processes):
            if peer != rank and process.namespace == processes[rank].namespace:
                self._watch(peer, process.pid)

    def _watch(self, peer: int, pid: int) -> None:
        try:
            descriptor = opened(pid)
        except ProcessLookupError:
            self._ended.add(peer)
            return
        if descriptor is not None:
            self._ranks[descriptor] = peer
            self._poll.register(descriptor, select.POLLIN)

    def ended(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes have ended; the same in each `wait`."""
        if self._lock.acquire(blocking=False):  # one thread at a time may poll
            try:
                found = [one for one, _ in self._poll.poll(0)]
                self._ended.update(self._ranks[one] for one in found if one in self._ranks)
            finally:
                self._lock.release()
        return sorted(self._ended)

    def close(self) -> None:
        """Watch no more."""
        # Another thread may just poll them, which takes no time. A signal handler may close while
        # this very thread polls, and waits for it in vain.
        is_free = self._lock.acquire(timeout=_POLL_ENDS_S)
        try:
            for descriptor in self._ranks:
                self._poll.unregister(descriptor)
                os.close(descriptor)
            self._ranks.clear()
        finally:
            if is_free:
                self._lock.release()
