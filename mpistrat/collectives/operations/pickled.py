"""Pickle objects: plain data at once, all else by cloudpickle."""

from __future__ import annotations

import io
import pickle
from typing import Any

from mpistrat.errors import ArgumentTypeError

__all__ = ["pack"]


def pack(value: Any) -> bytes:
    """Return a pickled object. **Local.**

    Raises
    ------
    ArgumentTypeError
        It cannot be pickled.
    """
    file = io.BytesIO()
    try:
        _PlainPickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except _NotPlainError:
        return _pack_by_value(value)
    return file.getvalue()


class _NotPlainError(Exception):
    """An object is, or holds, something else than Python's own plain data."""


class _PlainPickler(pickle.Pickler):
    """Pickle numbers, texts and containers of them, which is most of what is sent.

    That takes 1 us, and cloudpickle 15 us to begin. All else is cloudpickle's: a class or a
    function of the program may be another one on another rank, or missing there.
    """

    def reducer_override(self, value: Any) -> Any:
        raise _NotPlainError


def _pack_by_value(value: Any) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ArgumentTypeError(
            f"a {type(value).__name__} cannot be pickled: {error}; send plain data instead"
        ) from error
