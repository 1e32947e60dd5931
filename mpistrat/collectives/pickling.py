"""Pickle objects: what is the same on all ranks by Python itself, all else by cloudpickle."""

from __future__ import annotations

import io
import pickle
from typing import Any

from mpistrat.errors import ArgumentTypeError

__all__ = ["PICKLING_ERRORS", "pack", "pickled"]

PICKLING_ERRORS = (TypeError, AttributeError, ValueError, pickle.PicklingError)
"""What :func:`pickled` raises; a RecursionError is told as a PicklingError."""

# Packages whose classes and functions all ranks have.
_EVERYWHERE = ("builtins", "ml_dtypes", "mpistrat", "numpy")


def pack(value: Any) -> bytes:
    """Return a pickled object. **Local.**

    Raises
    ------
    ArgumentTypeError
        It cannot be pickled.
    """
    try:
        return pickled(value)
    except PICKLING_ERRORS as error:
        raise ArgumentTypeError(
            f"a {type(value).__name__} cannot be pickled: {error}; send plain data instead"
        ) from error


def pickled(value: Any) -> bytes:
    """Return a pickled object, or raise one of `PICKLING_ERRORS`. **Local.**"""
    file = io.BytesIO()
    try:
        _PlainPickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except (*PICKLING_ERRORS, RecursionError):  # cloudpickle can, or tells why not
        import cloudpickle

        return bytes(cloudpickle.dumps(value))
    return file.getvalue()


class _PlainPickler(pickle.Pickler):
    """Pickle numbers, texts, arrays and containers of them, which is most of what is sent.

    That takes 1 us; cloudpickle alone takes 15 us to start. All else is left to it: a class or a
    function of the program may differ or be missing on other ranks.
    """

    def reducer_override(self, value: Any) -> Any:
        # Classes and functions have a module of their own; objects have that of their class, but
        # not those of classes in C.
        module = getattr(value, "__module__", None) or type(value).__module__
        if str(module).partition(".")[0] in _EVERYWHERE:
            return NotImplemented  # as Python pickles it
        raise pickle.PicklingError(f"a {type(value).__name__} may differ on other ranks")
