"""Messages between the ranks of a job, each with a deadline that names whom it waited for."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Any

from mpistrat.errors import CommunicationTimeoutError
from mpistrat.system.number_ranges import ranges
from mpistrat.system.waiting import backoff, wait_until

__all__ = ["TimedComm"]

_LOOKS = 100
_NAPS = (1000, 1e-4, 1.5, 5e-3)  # eager looks, then pauses: see `backoff`


class TimedComm:
    """A communicator whose every wait ends.

    Values go by point-to-point messages, since a collective of MPI cannot be given up, nor can it
    tell who is missing. Tags must differ between uses: a message that came too late is never taken
    for another one.

    Parameters
    ----------
    comm
        An mpi4py communicator, which nobody else uses meanwhile.
    timeout_s
        Deadline of waits that name none.

    Attributes
    ----------
    comm, rank, size
        The communicator, this rank in it, and its size.
    """

    def __init__(self, comm: Any, timeout_s: float) -> None:
        self.comm = comm
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.timeout_s = timeout_s
        self._sent: list[Any] = []

    def send(self, value: object, receiver: int, tag: int) -> None:
        """Send a value; the receiver need not be waiting yet. **Local.**"""
        self._sent.append(self.comm.isend(value, dest=receiver, tag=tag))

    def receive(self, sender: int, tag: int, timeout_s: float | None = None) -> Any:
        """Return the value that a rank has sent.

        Raises
        ------
        CommunicationTimeoutError
            It did not come in time.
        """
        found = self._collect([sender], tag, timeout_s)
        if not found:
            raise self._late([sender], timeout_s)
        return found[sender]

    def gather(
        self, value: object, tag: int, timeout_s: float | None = None, root: int = 0
    ) -> dict[int, Any]:
        """Return the values of all ranks that sent one in time, on `root`; nothing elsewhere."""
        if self.rank != root:
            self.send(value, root, tag)
            return {}
        others = [rank for rank in range(self.size) if rank != root]
        return {root: value} | self._collect(others, tag, timeout_s)

    def share(self, value: object, tag: int, timeout_s: float | None = None, root: int = 0) -> Any:
        """Return the value of `root`, on every rank.

        Raises
        ------
        CommunicationTimeoutError
            It did not come in time.
        """
        if self.rank != root:
            return self.receive(root, tag, timeout_s)
        for rank in range(self.size):
            if rank != root:
                self.send(value, rank, tag)
        return value

    def meet(self, tag: int, timeout_s: float | None = None) -> None:
        """Wait until all ranks are here.

        Raises
        ------
        CommunicationTimeoutError
            Some were not in time; it names them, on every rank that waited.
        """
        arrived = self.gather(None, tag, timeout_s)
        # Rank 0 answers late ones, too: who comes now need not wait until its own deadline.
        limit_s = 2 * (timeout_s or self.timeout_s)
        missing = self.share([r for r in range(self.size) if r not in arrived], tag, limit_s)
        if missing:
            raise self._late(missing, timeout_s)

    def wait(self, requests: Iterable[Any], awaited: Collection[int], purpose: str) -> None:
        """Wait until requests of MPI are complete.

        Raises
        ------
        CommunicationTimeoutError
            They are not in time; it names the ranks of `awaited`.
        """
        for request in requests:
            # Short ones end soon: no more than their own calls between two looks.
            if any(request.Test() for _ in range(_LOOKS)):
                continue
            if not wait_until(request.Test, self.timeout_s, 0.0):
                raise CommunicationTimeoutError(
                    f"{purpose} with rank {ranges(awaited)} did not end within"
                    f" {self.timeout_s:g} s",
                    tuple(awaited),
                )

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was sent has left; return whether it did in time."""
        return wait_until(
            lambda: all(request.test()[0] for request in self._sent),
            timeout_s,
            backoff(*_NAPS),
        )

    def _collect(
        self, senders: Collection[int], tag: int, timeout_s: float | None
    ) -> dict[int, Any]:
        """Return the values of those senders whose message came before the deadline."""
        found: dict[int, Any] = {}
        end = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        for sender in senders:
            messages: list[Any] = []

            def has_come(sender: int = sender, messages: list[Any] = messages) -> bool:
                message = self.comm.improbe(source=sender, tag=tag)
                if message is not None:
                    messages.append(message.recv())
                return message is not None

            if wait_until(has_come, max(0.0, end - time.monotonic()), backoff(*_NAPS)):
                found[sender] = messages[0]
        return found

    def _late(
        self, missing: Collection[int], timeout_s: float | None
    ) -> CommunicationTimeoutError:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return CommunicationTimeoutError(
            f"rank {ranges(missing)} of {self.size} did not answer within {limit_s:g} s",
            tuple(missing),
        )
