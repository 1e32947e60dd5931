"""Note the signals that announce the end of the job, and do nothing else when they come."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

from mpistrat.collectives.health import interrupts
from mpistrat.errors import ArgumentTypeError, ContextError, UsageError

__all__ = ["SignalNotes", "checked_signals", "name_of"]

_KEPT = {signal.SIGTERM, signal.SIGINT}  # by which parents end their children
_MOST_READ = 64


def checked_signals(signals: Iterable[int]) -> tuple[int, ...]:
    """Return `signals` if handlers can be installed for them. **Local.**

    Raises
    ------
    UsageError
        One is no signal, or no program can handle it.
    ContextError
        This is not the main thread, in which alone Python runs handlers.
    """
    found = tuple(signals) if isinstance(signals, Iterable) else (signals,)
    for number in found:
        if not isinstance(number, int):
            raise ArgumentTypeError(
                f"signals={signals!r}: {number!r} is no signal; expected such as (signal.SIGUSR1,)"
            )
        cannot = (signal.SIGKILL, signal.SIGSTOP)
        if number not in signal.valid_signals() or number in cannot:
            raise UsageError(
                f"signals={signals!r}: {number} cannot be handled; expected such as SIGUSR1"
            )
    if found and threading.current_thread() is not threading.main_thread():
        raise ContextError(
            "PreemptionHandler in the thread"
            f" {threading.current_thread().name!r}: Python handles signals in the main thread"
            " alone; make it there, or pass signals=() and call request_stop()"
        )
    return found


def name_of(number: int) -> str:
    """Return a signal's name, for messages; 0 is a request to stop."""
    if not number:
        return "a request to stop"
    try:
        return signal.Signals(number).name
    except ValueError:  # of those for real time only the first and the last have one
        return f"signal {number}"


class SignalNotes:
    """Which of some signals have come to this process, and when.

    Parameters
    ----------
    signals
        Of `checked_signals`.

    Attributes
    ----------
    came
        When each came first, in seconds since 1970.
    """

    def __init__(self, signals: tuple[int, ...]) -> None:
        self._signals = signals
        self.came: dict[int, float] = {}
        self._before: dict[int, Any] = {}
        # Signals, also while Python does not run in the main thread, and the end of a wait.
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def install(self) -> None:
        """Replace the handlers of the signals. **Local**, in the main thread.

        Raises
        ------
        UsageError
            Another object of this kind has done so.
        """
        if self._signals and _active:
            raise UsageError(
                "a second PreemptionHandler while the first is open; close() that one, or use it"
            )
        if self._signals:
            _active.append(self)
            interrupts.listen(self._write)
        for number in self._signals:
            self._before[number] = signal.signal(number, self._note)
            # System calls of C code go on: libraries that write files may not expect EINTR.
            signal.siginterrupt(number, False)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came.setdefault(number, time.time())

    def put_back(self) -> None:
        """Put the handlers back that were there before. Idempotent."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._note:  # else the program has set another since
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()
        if self in _active:
            _active.remove(self)
            interrupts.listen(-1)

    def request(self) -> None:
        """Note a stop that no signal has asked for, as signal 0."""
        self.came.setdefault(0, time.time())
        self.wake()

    def wake(self) -> None:
        """End a wait of another thread."""
        with contextlib.suppress(BlockingIOError):  # full: it wakes anyway
            os.write(self._write, b"\0")

    def wait(self, timeout_s: float) -> None:
        """Wait until a signal comes, or `wake` is called, or the time is over; note signals.

        For a thread other than the main one.
        """
        self._poll.poll(max(0.0, timeout_s * 1e3))
        interrupts.pass_on()
        with contextlib.suppress(BlockingIOError):  # nothing has come
            for number in os.read(self._read, _MOST_READ):
                if number in self._before:
                    self.came.setdefault(number, time.time())

    def close(self) -> None:
        """Give the pipe back, when nobody waits any more."""
        self._poll.unregister(self._read)
        os.close(self._read)
        os.close(self._write)

    def forget(self) -> None:
        """Note nothing: this is a forked child, such as a worker that loads data.

        Slurm sends signals to all processes of a step. A child that such a signal would end takes
        no part in the stop, and its parent would lose what it waits for: so the child ignores it.
        But SIGTERM and SIGINT do what they did before, since parents end their children by them.
        """
        for number, before in self._before.items():
            ends = before in (None, signal.SIG_DFL) and number not in _KEPT
            handler = signal.SIG_IGN if ends else before
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()
        self.came.clear()


_active: list[SignalNotes] = []


def _forget_all() -> None:
    while _active:
        _active.pop().forget()


os.register_at_fork(after_in_child=_forget_all)
