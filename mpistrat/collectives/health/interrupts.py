"""Handle Ctrl-C while the main thread waits for a collective in foreign code.

Python runs the handlers of signals in its main thread, between two steps of Python code. While
that thread is inside of a ``tf.function`` whose collective another thread waits in, a handler
would run when all peers have come. But Python notes a signal at once (``signal.set_wakeup_fd``),
and the waiting thread looks there: it gives up, the foreign code comes back, and Python raises
KeyboardInterrupt in its main thread, as it always does.

Only of Python's own handler of Ctrl-C is it known that it ends what is under way. Any other
handler runs when the foreign code is over, as without all this. A program that has a wakeup
descriptor of its own, such as one with asyncio's signal handlers, keeps it; its waits go on. A
wait of another thread in a graph, and in another strategy, ends with that of the main thread.
Graphs of ``tf.compat.v1.Session`` are not looked after.

Another part of this package may listen to signals all the time (`listen`): outside of foreign code
Python writes them to its pipe, and what comes meanwhile is copied there (`pass_on`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["check", "foreign", "heeding", "listen", "pass_on"]

_T = TypeVar("_T")
_NONE = -1  # as a wakeup descriptor, or a thread
_MOST_READ = 64
_thread = threading.local()


class _Notes:
    """What Python writes down of signals while foreign code runs in its main thread."""

    def __init__(self) -> None:
        self.thread = self._read = self._descriptor = _NONE
        self._came: list[int] = []
        self._listener = _NONE  # a pipe that takes the numbers of all signals, or none
        self.is_inside = self._is_over = False

    def open(self) -> None:
        """Open the pipe, once in a process. Signals are noted for its main thread only."""
        if self._descriptor == _NONE:
            self._read, self._descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._poll = select.poll()  # of the main thread only
            self._poll.register(self._read, select.POLLIN)
            self.thread = threading.main_thread().ident or _NONE

    def forget(self) -> None:
        """Have nothing in common with the parent: this is a forked child."""
        self._stop(_NONE)
        self._listener = _NONE
        if self._descriptor != _NONE:
            self._poll.unregister(self._read)
            for end in (self._read, self._descriptor):
                os.close(end)
            self._read = self._descriptor = _NONE
            self._came.clear()
            self.is_inside = self._is_over = False

    def start(self) -> bool:
        """Have Python write signals to the pipe from now on; return whether it does.

        Not where the program has a wakeup descriptor of its own, which it keeps.
        """
        if not self._is_over:  # an interrupt came between the end of the last call and this
            self._clear()
        self._is_over = False
        before = signal.set_wakeup_fd(self._descriptor, warn_on_full_buffer=False)
        if self._is_ours(before) or not _is_set_again(before):
            return True
        if self._poll.poll(0):  # one came in between, which asyncio would never hear of
            self._take()
            with contextlib.suppress(BlockingIOError):  # full: as if Python had written it
                os.write(before, bytes(self._came))
        return False

    def end(self) -> None:
        """Let it stop; raise KeyboardInterrupt if foreign code has swallowed one."""
        self._stop(self._listener)
        if self._poll.poll(0) or self._came:
            had_interrupt = self.has_interrupt()
            self._clear()
            if had_interrupt:
                raise KeyboardInterrupt from None
        self._is_over = True

    def listen(self, descriptor: int) -> bool:
        """Have Python write signals to another pipe, too, or to none; see `listen` below."""
        before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        is_ours = self._is_ours(before)
        self._listener = descriptor
        return is_ours or not _is_set_again(before)

    def _stop(self, descriptor: int) -> None:
        before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        if not self._is_ours(before):
            _is_set_again(before)

    def _is_ours(self, descriptor: int) -> bool:
        return descriptor in (_NONE, self._descriptor, self._listener)

    def _clear(self) -> None:
        while self._poll.poll(0):
            self._take()
        self._came.clear()

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):  # nothing new, or another thread was sooner
            came = os.read(self._read, _MOST_READ)
            self._came += came
            if self._listener != _NONE:
                os.write(self._listener, came)

    def pass_on(self) -> None:
        """Copy to the listener what has come since foreign code began in the main thread."""
        if self.is_inside:
            self._take()

    def has_interrupt(self) -> bool:
        """Tell whether a signal has come that raises KeyboardInterrupt."""
        self._take()
        interrupts = signal.default_int_handler
        return any(signal.getsignal(number) is interrupts for number in tuple(self._came))


def _is_set_again(descriptor: int) -> bool:
    """Let Python note signals as before; return False if the program has closed that since."""
    try:
        signal.set_wakeup_fd(descriptor)
    except (OSError, ValueError):  # ValueError: its number is of a file now, which blocks
        return False
    return True


_notes = _Notes()
os.register_at_fork(after_in_child=_notes.forget)


def listen(descriptor: int) -> bool:
    """Have Python write the number of each signal to a pipe, whatever its main thread does.

    Parameters
    ----------
    descriptor
        Its end to write to, which does not block; -1 for none.

    Returns
    -------
    bool
        False where the program has a wakeup descriptor of its own, which it keeps.

    Notes
    -----
    **Local**, and for the main thread. While foreign code runs in it (`foreign`) signals are noted
    elsewhere, until `pass_on` is called or that code ends. A forked child listens to nothing.
    """
    return _notes.listen(descriptor)


def pass_on() -> None:
    """Copy what has come during foreign code to the pipe of `listen`. **Local.**"""
    _notes.pass_on()


def foreign(call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Return ``call(*args, **kwargs)``, which may wait for other threads without running Python.

    **Local.** 2 us in the main thread; other threads have nothing to do with signals.
    """
    _notes.open()
    if threading.get_ident() != _notes.thread or _notes.is_inside or not _notes.start():
        return call(*args, **kwargs)
    try:
        _notes.is_inside = True
        return call(*args, **kwargs)
    finally:
        _notes.is_inside = False
        _notes.end()


def heeding(wait: Callable[..., _T], *args: Any) -> _T:
    """Return ``wait(*args)``, which ends early if the main thread was interrupted. **Local.**

    For waits that foreign code in the main thread counts on, there or in another thread.
    """
    _thread.heeds = True
    try:
        return wait(*args)
    finally:
        _thread.heeds = False


def check() -> None:
    """Raise KeyboardInterrupt if this wait is to heed one that the main thread got. **Local.**

    In the main thread itself, what Python raised may have been swallowed by foreign code.
    """
    if getattr(_thread, "heeds", False) and _notes.is_inside and _notes.has_interrupt():
        raise KeyboardInterrupt
