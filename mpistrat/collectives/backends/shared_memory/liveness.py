"""Watch the processes of the ranks on this machine by pidfd: a dead one shows in milliseconds."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Sequence

from mpistrat.collectives.backends.shared_memory.bootstrap import Process

__all__ = ["Liveness"]


class Liveness:
    """The peers' processes, watched by descriptors that become readable when they end (pidfd).

    Where that is impossible (another PID namespace, an old kernel) a peer is not watched.
    """

    def __init__(self, processes: Sequence[Process], rank: int) -> None:
        self._owner = os.getpid()
        self._ranks: dict[int, int] = {}
        self._poll = select.poll()
        self._lock = threading.Lock()
        self._ended: set[int] = set()
        for peer, process in enumerate(processes):
            if peer != rank and process.namespace == processes[rank].namespace:
                self._watch(peer, process.pid)

    def _watch(self, peer: int, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended.add(peer)
        except (AttributeError, OSError):
            return
        else:
            self._ranks[fd] = peer
            self._poll.register(fd, select.POLLIN)

    def ended(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes have ended; the same in each `wait`."""
        if self._lock.acquire(blocking=False):  # one thread at a time may poll
            try:
                self._ended.update(self._ranks[fd] for fd, _ in self._poll.poll(0))
            finally:
                self._lock.release()
        return sorted(self._ended)

    def close(self) -> None:
        """Watch no more."""
        for fd in self._ranks:
            self._poll.unregister(fd)
            os.close(fd)
        self._ranks.clear()
