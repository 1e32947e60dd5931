"""Defer signals until a critical section has ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ENDING_SIGNALS", "signals_deferred"]

#: What terminals and batch systems send: Ctrl-C, the end of the job, that of the terminal.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_deferred(*numbers: signal.Signals) -> Iterator[None]:
    """Handle signals of this block after it. Only for blocks that never wait for long.

    Python runs handlers in the main thread; other threads are not interrupted anyway. Where no
    handler of Python's would run, nothing is changed: a signal that is ignored, ends the process,
    or has a handler in C does so at once. What a handler raises is raised where the block ends:
    what the block has assigned is assigned.
    """
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in numbers}
    came: list[int] = []
    ours = [number for number, handler in handlers.items() if callable(handler)]
    try:
        for number in ours:
            signal.signal(number, lambda one, frame: came.append(one))
        yield
    finally:
        for number in ours:
            signal.signal(number, handlers[number])
        for one in came:
            signal.raise_signal(one)  # for whatever there was
