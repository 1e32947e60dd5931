"""Fail a test of pytest's own process at its deadline (`placement`), with its threads' stacks."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest

__all__ = ["deadline"]


@contextlib.contextmanager
def deadline(timeout_s: float) -> Iterator[None]:
    """Fail the test that runs inside once `timeout_s` seconds have passed.

    The failure is raised in the main thread, at its next Python instruction; what waits in C for
    ever is left to :func:`faulthandler.dump_traceback_later`. Outside the main thread this does
    nothing.
    """

    def fail(_number: int, _frame: FrameType | None) -> NoReturn:
        __tracebackhide__ = True
        pytest.fail(f"deadline of {timeout_s:g} s passed{_other_stacks()}")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        # The timer first: a signal after the handler is gone would end the process.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _other_stacks() -> str:
    """Return where the other threads are; where this one is, the traceback shows."""
    frames = sys._current_frames()
    return "".join(
        f"\nthread {thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and thread.ident in frames
    )
