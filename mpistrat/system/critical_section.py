"""Defer Ctrl-C until a critical section has ended."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C until the block ends. Only for blocks that wait for no other process.

    Python runs handlers in the main thread; other threads are not interrupted anyway. A handler
    that was not made in Python could not be put back, and stays.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            _deliver(handler)


def _deliver(handler: Any) -> None:
    """Do once what an interrupt does by `handler`."""
    # Not by another signal where there is a function: asyncio's loops have heard of the first one
    # already, by the file descriptor of signal.set_wakeup_fd, and would count two.
    if callable(handler):
        handler(signal.SIGINT, sys._getframe())
    else:
        signal.raise_signal(signal.SIGINT)
