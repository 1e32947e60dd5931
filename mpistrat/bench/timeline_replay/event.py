"""Check one event of a timeline; it is data from a file, and may be anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.tables.reduction_ops import DTYPES, OPS, check_op

__all__ = ["Event", "parse_event"]

_REDUCING = ("allreduce", "allreduce_many", "reduce", "reduce_scatter")
_MOVING = ("bcast", "allgather", "gather", "scatter", "alltoall")
_OBJECTS = ("allgather_object", "bcast_object")
_REPLAYED = (*_REDUCING, *_MOVING, *_OBJECTS, "barrier")
_LEFT_OUT = ("close", "empty", "empty_shared")
_HALVES = ("float16", "bfloat16")
_STATES = ("done", "failed", "under way")
_MAX_BYTES = 1 << 40
_MAX_US = 1e17  # the timeline's clock counts from 2025


@dataclass(frozen=True)
class Event:
    """A call of a rank, as a timeline has it.

    Attributes
    ----------
    op, dtype, reduction, nbytes
        As in `Kind`; the dtype of what has none, and of a list of several, is uint8.
    rank
        Which called.
    place
        The number of the communicator, and of the call in it.
    start_us, duration_us
        When, and for how long.
    is_replayed
        False for a call that failed or was under way, and for one that moves no data.
    """

    op: str
    dtype: str
    reduction: str | None
    nbytes: int
    rank: int
    place: tuple[int, int]
    start_us: float
    duration_us: float
    is_replayed: bool


def parse_event(event: Any) -> Event | None:
    """Return a call; None for an event of another kind. **Local.**

    Raises
    ------
    UsageError
        It is not what a timeline of mpistrat holds; the message says what is wrong.
    """
    if not isinstance(event, dict):
        raise UsageError(f"{_short(event)} is no object with the keys of Chrome's trace format")
    if event.get("ph") != "X" or event.get("cat") != "collective":
        return None
    args = event.get("args")
    if not isinstance(args, dict):
        raise UsageError(f"args is {_short(args)}; expected an object")
    op = _one_of("name", event.get("name"), (*_REPLAYED, *_LEFT_OUT))
    state = _one_of("args.state", args.get("state"), _STATES)
    nbytes = _whole("args.bytes", args.get("bytes"), _MAX_BYTES)
    reduction = _reduction(op, args.get("reduction"))
    return Event(
        op,
        _dtype(op, args.get("dtype"), reduction, nbytes),
        reduction,
        nbytes,
        _whole("tid", event.get("tid"), 1 << 31),
        (_whole("args.communicator", args.get("communicator"), 1 << 31), _sequence(args)),
        _time("ts", event.get("ts")),
        _time("dur", event.get("dur")),
        state == "done" and op in _REPLAYED,
    )


def _sequence(args: dict[str, Any]) -> int:
    return _whole("args.sequence", args.get("sequence"), 1 << 62)


def _reduction(op: str, value: Any) -> str | None:
    return _one_of("args.reduction", value, OPS) if op in _REDUCING else None


def _dtype(op: str, value: Any, reduction: str | None, nbytes: int) -> str:
    """Return the dtype in which a call is replayed."""
    if value is None and op not in (*_REDUCING, "bcast"):
        return "uint8"  # the record has none
    if value == "mixed" and op == "allreduce_many":
        return "float32" if nbytes % 4 == 0 else "uint8"
    name = _one_of("args.dtype", value, (*sorted(DTYPES), *_HALVES))
    dtype = _as_dtype(name)
    if nbytes % dtype.itemsize:
        raise UsageError(f"args.bytes is {nbytes}; expected whole elements of {name}")
    if reduction is not None:
        check_op(reduction, dtype)
    return name


def _as_dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def _one_of(key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise UsageError(f"{key} is {_short(value)}; expected one of {', '.join(allowed)}")
    return value


def _whole(key: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UsageError(f"{key} is {_short(value)}; expected a whole number from 0 to {most}")
    return value


def _time(key: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # An int may be too large for a float, so it is compared first.
    if not is_number or not 0 <= value <= _MAX_US or not math.isfinite(value):
        raise UsageError(f"{key} is {_short(value)}; expected microseconds from 0 to {_MAX_US:g}")
    return float(value)


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."
