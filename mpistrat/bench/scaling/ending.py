"""End a suite by the signals that batch systems and terminals send, as by Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Ended", "ended_by_signals", "undisturbed"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal ends the suite; as KeyboardInterrupt, no `except Exception` stops it.

    Parameters
    ----------
    number
        Of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number  # as a shell has it


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, the end of the job and that of the terminal raise `Ended` in the block.

    After that they are ignored: the program has what is left to say, and ends.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise Ended(number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    except Ended:
        raise
    except BaseException:
        _restore(before)
        raise
    _restore(before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore these signals in the block, which has to be short: it ends a job's processes."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
