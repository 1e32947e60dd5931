"""`OutsideCall`: a collective whose data another library carries, behind this package's gate.

The ranks compare the call before the library gets it, so that no rank is left waiting there for
one that called something else. While the library works, whoever waits has a deadline, and hears of
ranks that failed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mpistrat.collectives.backends.base import SleepingRequest

if TYPE_CHECKING:
    from mpistrat.collectives.progress.engine import Engine
    from mpistrat.collectives.progress.work import Work

__all__ = ["OutsideCall"]


class OutsideCall(SleepingRequest):
    """A call under way; :meth:`CollectiveMethods.start_outside` starts one.

    In this order: :meth:`wait_for_all`, the library's transfer, and :meth:`end` or :meth:`fail`.
    Calls that start later on the same communicator begin after that.

    Attributes
    ----------
    has_arrived
        Whether all ranks have made this call.
    """

    __slots__ = ("_engine", "_error", "_is_over", "_work", "has_arrived")

    def __init__(self) -> None:
        self.has_arrived = False
        self._is_over = threading.Event()
        self._error: Exception | None = None
        self._engine: Engine
        self._work: Work[None]

    def follow(self, engine: Engine, work: Work[None]) -> OutsideCall:
        """Belong to a work of an engine; return this call. **Local.**"""
        self._engine, self._work = engine, work
        return self

    def arrive(self) -> None:
        """Note that all ranks are here. **Local.**"""
        self.has_arrived = True

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for before the transfer."""
        return self.has_arrived or self._work.done

    @property
    def is_over(self) -> bool:
        """Whether the call has ended, well or not."""
        return self._is_over.is_set() or self._work.done

    def sleep(self, seconds: float) -> bool:
        """See `SleepingRequest`; raise what the transfer failed with."""
        is_over = self._is_over.wait(seconds) if seconds else self._is_over.is_set()
        if self._error is not None:
            raise self._error
        return is_over

    def wait_for_all(self, timeout: float | None = None) -> None:
        """Wait until all ranks have made the same call. **Collective**, blocks.

        Raises
        ------
        MismatchError
            They called different things.
        CommunicationTimeoutError, PeerLostError
            As of `Work.wait`.
        """
        if not self.done:
            self._engine.wait(self, timeout)
        if self._work.done:
            self._work.wait()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the transfer is over, in another thread than the one that makes it.

        Raises
        ------
        CommunicationTimeoutError, PeerLostError
            As of `Work.wait`; the communicator is broken then, and the transfer may go on.
        """
        self._work.wait(timeout)

    def end(self) -> None:
        """Say that the data have come. **Local.**

        Raises
        ------
        CommunicationError
            The call was given up meanwhile.
        """
        self._is_over.set()
        self._work.wait()

    def fail(self, error: Exception) -> Any:
        """Say that the transfer failed here; return the error to raise. **Local.**

        It breaks the communicator, so that the peers need not wait for this rank.
        """
        self._error = error
        self._is_over.set()
        try:
            self._work.wait()
        except Exception as raised:  # noqa: BLE001 - it is `error`, or says why it came to that
            return raised
        return error
