"""The two steps of an operation that calls Python, as kernels/tf/call.h has them.

A step runs Python code for an operation, and gives it what that raised as a code and a text.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from mpistrat.errors import CommunicationError

__all__ = [
    "NOT_BEGUN",
    "CallSeen",
    "Rest",
    "Shape",
    "Step",
    "UnknownKeyError",
    "begin_by",
    "finish",
    "interrupt_told_of",
    "left_interrupt",
    "shapes_of",
]

Rest: TypeAlias = Callable[[], None]
Shape: TypeAlias = tuple[int, ...]

# As in call.h.
_DONE, _INVALID, _ABORTED, _INTERNAL, _UNKNOWN_KEY, _CANCELLED, _UNFINISHED = range(7)
NOT_BEGUN = -1

_thread = threading.local()
_numbers = itertools.count()
_rests: dict[int, Rest] = {}


class UnknownKeyError(LookupError):
    """Raised by a callback for a key that was not given out in this process."""


class CallSeen(ctypes.Structure):
    """MpistratTfCall of call.h: a call, as the operation shows it."""

    _fields_ = (
        ("key", ctypes.c_int64),
        ("num", ctypes.c_int64),
        ("inputs", ctypes.POINTER(ctypes.c_ssize_t)),
        ("outputs", ctypes.POINTER(ctypes.c_ssize_t)),
        ("nbytes", ctypes.POINTER(ctypes.c_int64)),
        ("rest", ctypes.c_int64),
        ("error", ctypes.c_void_p),
        ("error_bytes", ctypes.c_int64),
        ("status", ctypes.c_int64),
        ("sequence", ctypes.c_int64),
        ("ndims", ctypes.POINTER(ctypes.c_int64)),
        ("shapes", ctypes.POINTER(ctypes.c_int64)),
        ("outcome", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int64),
    )


Step: Any = ctypes.CFUNCTYPE(None, ctypes.POINTER(CallSeen))


def begin_by(started: Callable[[CallSeen], Rest | None]) -> Callable[[Any], None]:
    """Return the step that begins a call by `started`, which returns what is left to do."""

    def begin(pointer: Any) -> None:
        this = pointer.contents
        try:
            # A handler of Ctrl-C may raise before this function does anything. Then the outcome is
            # still call.h's kInterrupted, and it calls again: from here on it must not.
            this.outcome = _INTERNAL
            rest = started(this)
            if rest is None:
                this.outcome = _DONE
                return
            # A number stands for the function in the C struct. `_rests` keeps it and the views
            # alive.
            this.rest = next(_numbers)
            _rests[this.rest] = rest
            this.outcome = _UNFINISHED
        except BaseException as error:  # noqa: BLE001 - it is told to TensorFlow
            this.outcome = _tell(error, this)

    return begin


def finish(pointer: Any) -> None:
    """Do what is left of a call."""
    this = pointer.contents
    try:
        this.outcome = _INTERNAL
        _rests.pop(this.rest)()
        this.outcome = _DONE
    except BaseException as error:  # noqa: BLE001 - it is told to TensorFlow
        this.outcome = _tell(error, this)


def shapes_of(this: CallSeen) -> list[Shape]:
    """Return the shapes of a call's tensors."""
    ndims = this.ndims[: this.num]
    ends = itertools.accumulate(ndims)
    return [tuple(this.shapes[end - n : end]) for n, end in zip(ndims, ends, strict=True)]


def left_interrupt() -> BaseException | None:
    """Return what ended a step in this thread that is no `Exception`, such as Ctrl-C, once."""
    interrupt: BaseException | None = _thread.__dict__.pop("interrupt", None)
    return interrupt


def interrupt_told_of(text: str) -> BaseException | None:
    """Return what `left_interrupt` does if `text`, of TensorFlow's error, tells of it."""
    interrupt = _thread.__dict__.get("interrupt")
    is_told = interrupt is not None and f"{type(interrupt).__name__}: {interrupt}" in text
    return left_interrupt() if is_told else None


def _tell(error: BaseException, this: CallSeen) -> int:
    """Write an exception's text to the operation's buffer; return the outcome code."""
    # call.h reads the text up to its first NUL.
    text = f"{type(error).__name__}: {error}".replace("\0", " ").encode(errors="replace")
    whole = text[: this.error_bytes - 1].decode(errors="ignore").encode()  # no half character
    ctypes.memmove(this.error, whole + b"\0", len(whole) + 1)
    if not isinstance(error, Exception):
        # KeyboardInterrupt and its like: `left_interrupt` has the exception, for this thread.
        _thread.interrupt = error
        return _CANCELLED
    # The first match counts: a MismatchError is a ValueError and a CommunicationError.
    outcomes = {
        UnknownKeyError: _UNKNOWN_KEY,
        ValueError: _INVALID,
        TypeError: _INVALID,
        CommunicationError: _ABORTED,
    }
    found = (outcome for kind, outcome in outcomes.items() if isinstance(error, kind))
    return next(found, _INTERNAL)
