"""Clean up when a batch system or a closed terminal ends the build: SIGTERM and SIGHUP."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

__all__ = ["exit_at_termination"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_SHELLS_STATUS = 128  # of a process that a signal ended, plus the signal's number


@contextlib.contextmanager
def exit_at_termination() -> Iterator[None]:
    """Exit by SystemExit at SIGTERM and SIGHUP. **Local**; for the main thread.

    By default they end this process at once: compilers, which have a session of their own, would
    go on, and the folder of the build would stay. A signal that is ignored, as under nohup, stays
    so.
    """
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    ours = [one for one, handler in before.items() if handler == signal.SIG_DFL]
    for one in ours:
        signal.signal(one, _exit)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(_SHELLS_STATUS + number)
