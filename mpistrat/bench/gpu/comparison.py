"""The sides of a row of the kernels' table: a kernel of mpistrat, a user's code, a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from mpistrat.types import Array

__all__ = ["COPY", "OURS", "Comparison", "Planned", "Side", "copy_side", "on_host", "pattern"]

OURS, COPY = "mpistrat", "copy"
_PERIOD = 7
_PERIODS = 4096  # at a time: np.resize makes a list of the pieces that it joins

Kind: TypeAlias = Literal["mpistrat", "cupy", "torch", "bound"]


@dataclass(frozen=True)
class Side:
    """A contender.

    Attributes
    ----------
    name
        In the table.
    kind
        Whose code it is; ``"bound"`` for the copy.
    call
        Queues it once on the current stream. It returns the result, or None if that is where
        `Comparison.is_right` looks for it.
    launches
        Kernels and copies of a call, about.
    """

    name: str
    kind: Kind
    call: Callable[[], object]
    launches: int = 1


@dataclass(frozen=True)
class Comparison:
    """A row.

    Attributes
    ----------
    family, what, dtype
        What is done, in the table's words.
    nbytes
        Size of the problem: of one buffer, or of all arrays of a list.
    moved
        Bytes that have to be read and written, at least: all GB/s are of these.
    sides
        The contenders; mpistrat's is the first.
    reset
        Spoils results, and puts back what a call changes.
    is_right
        Tells whether a call's result is right, given what it returned.
    """

    family: str
    what: str
    dtype: str
    nbytes: int
    moved: int
    sides: list[Side]
    reset: Callable[[], None]
    is_right: Callable[[Any], bool]


@dataclass(frozen=True)
class Planned:
    """A row before its arrays are there.

    Attributes
    ----------
    family, what, nbytes
        As of `Comparison`.
    needed
        Bytes of the GPU's memory that it takes, those of the copy included.
    make
        Makes it.
    """

    family: str
    what: str
    nbytes: int
    needed: int
    make: Callable[[], Comparison]


Plans: TypeAlias = Iterator[Planned]


def pattern(count: int, shift: int = 0, dtype: str = "float32") -> Array:
    """Return 1 to 7 in turn: exact in every dtype, and of a period that no chunk size divides."""
    one = (np.arange(_PERIOD) + shift) % _PERIOD + 1
    return np.resize(np.tile(one.astype(dtype), _PERIODS), count)


def on_host(answer: Any) -> Array:
    """Return an array of CuPy or torch in memory of the host."""
    mine: Array = answer.get() if hasattr(answer, "get") else answer.cpu().numpy()
    return mine


def copy_side(moved: int) -> Side:
    """Return the copy on the GPU that reads and writes `moved` bytes, half of them each."""
    import cupy

    source, target = (cupy.zeros(max(1, moved // 2), np.uint8) for _ in range(2))
    memcpy, kind = cupy.cuda.runtime.memcpyAsync, cupy.cuda.runtime.memcpyDeviceToDevice

    def copy() -> Any:
        stream = cupy.cuda.get_current_stream().ptr
        memcpy(target.data.ptr, source.data.ptr, source.nbytes, kind, stream)
        return target  # keeps both alive, and tells what to check

    return Side(COPY, "bound", copy)
