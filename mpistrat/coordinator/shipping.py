"""Ship functions and arguments to workers: a function once, then only its number."""

from __future__ import annotations

import itertools
import pickle
import threading
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mpistrat.collectives.pickling import PICKLING_ERRORS, pickled
from mpistrat.coordinator.unpicklable import unpicklable_part
from mpistrat.errors import ArgumentTypeError
from mpistrat.ps.transport.stream import APART_BYTES

__all__ = ["NO_ARGUMENTS", "Function", "Functions", "pack", "packed_buffer"]

_MOST_FUNCTIONS = 1024


class Function:
    """A function to be run on workers.

    Attributes
    ----------
    number
        By which workers know it.
    packed
        What travels: the function, and what it captures as it was when it was first scheduled.
    name
        For messages.
    is_dropped
        Whether workers have been told to forget it; those that get it later are told again.
    """

    def __init__(self, number: int, fn: Callable[..., Any]) -> None:
        self.number, self.fn = number, fn
        self.name = str(getattr(fn, "__qualname__", fn))
        self.is_dropped = False
        self.packed = pack(fn, f"function {self.name}")


class Functions:
    """The functions that were scheduled, each under one number.

    Parameters
    ----------
    forget
        Called with the number of one that was not scheduled for long, and is dropped.
    """

    def __init__(self, forget: Callable[[int], None]) -> None:
        self._known: OrderedDict[Any, Function] = OrderedDict()
        self._numbers = itertools.count(1)
        self._forget = forget
        self._lock = threading.Lock()

    def find(self, fn: Callable[..., Any]) -> Function:
        """Return what travels for `fn`, made at its first call; methods are known by their self.

        Raises
        ------
        ArgumentTypeError
            It is no function, or cannot be pickled.
        """
        # `Function` keeps `fn`, so no other object has its id while it is known.
        key: Any = id(fn)
        if isinstance(fn, types.MethodType):  # made anew at every access
            key = _method_key(fn)
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
        if not callable(fn):
            raise ArgumentTypeError(
                f"schedule of a {type(fn).__name__}; expected a function, with its arguments"
                " apart: schedule(fn, args=(x,))"
            )
        made = Function(next(self._numbers), fn)  # runs what the program's objects do to travel
        with self._lock:
            # Another thread may have packed it meanwhile: then that one's number is the
            # function's.
            found = self._known.setdefault(key, made)
            oldest = None
            if len(self._known) > _MOST_FUNCTIONS:
                _, oldest = self._known.popitem(last=False)
        if oldest is not None:
            oldest.is_dropped = True
            self._forget(oldest.number)
        return found


def _method_key(method: types.MethodType) -> tuple[int, Any]:
    """Return what tells a method from others: its name, if that leads to it, else its function.

    Where a worker is a thread, a class that arrives there gets its functions anew.
    """
    name, function = method.__name__, method.__func__
    is_named = getattr(type(method.__self__), name, None) is function
    return id(method.__self__), name if is_named else id(function)


def pack(value: Any, what: str, named: Any = None) -> bytes:
    """Return `value` as bytes for another member of the job.

    Parameters
    ----------
    value, what
        What to send, and what it is in messages.
    named
        An object whose attributes (``args``, ``kwargs``) have the names that messages show; None
        for `value` itself.

    Raises
    ------
    ArgumentTypeError
        It, or something that it holds, cannot travel.
    """
    try:
        return pickled(value)
    except PICKLING_ERRORS as error:
        part = unpicklable_part(value if named is None else named)
        raise ArgumentTypeError(
            f"{what} cannot be sent to another rank{f', because of {part}' if part else ''}:"
            f" {error}; pass plain data, arrays, variables of the strategy, or functions that"
            " capture such; open files, locks and threads are to be made on the worker"
        ) from error


def packed_buffer(packed: bytes) -> Any:
    """Return `packed` in the form in which a message carries it without a copy."""
    # A stream would keep a shorter buffer inside its pickle.
    return pickle.PickleBuffer(packed) if len(packed) >= APART_BYTES else packed


NO_ARGUMENTS = pickle.dumps(((), {}), 5)
