"""Make Horovod's blocking transfers in a thread, so that they are requests of a backend."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from mpistrat.collectives.backends.base import SleepingRequest

__all__ = ["Transfer", "TransferThread"]


_MOMENT_S = 50e-6


class Transfer(SleepingRequest):
    """A transfer that the thread makes, or is to make."""

    __slots__ = ("_error", "_is_over", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._is_over = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Make it, in the thread."""
        try:
            self._make()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self._is_over.set()

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Return whether it is over; let the thread have the GIL for a moment if it is not.

        Who asks in a loop would else have it nearly always: the thread would get it once in 5 ms,
        for the short time until TensorFlow next lets go of it.
        """
        return self.sleep(0.0) or self.sleep(_MOMENT_S)

    def sleep(self, seconds: float) -> bool:
        """See `SleepingRequest`; raise what the transfer failed with."""
        is_over = self._is_over.wait(seconds) if seconds else self._is_over.is_set()
        if self._error is not None:
            raise self._error
        return is_over


class TransferThread:
    """One thread, which makes transfers in the order in which they come."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Transfer | None] = queue.SimpleQueue()
        # As a daemon: it may be in a transfer that never ends when the program does.
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, make: Callable[[], Any]) -> Transfer:
        """Let the thread call `make`; return the request."""
        transfer = Transfer(make)
        self._queue.put(transfer)
        return transfer

    def close(self) -> None:
        """End the thread, once it has made all transfers."""
        self._queue.put(None)

    def _run(self) -> None:
        while (transfer := self._queue.get()) is not None:
            transfer.run()
            del transfer  # it refers to the arrays of its call
