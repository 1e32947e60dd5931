"""Copy and convert many arrays on a GPU by one launch: pack, unpack, concatenate, cast.

All launch on the current stream and do not wait. Arrays are CuPy's, in C order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.collectives.backends.gpu.kernels.launch import (
    blocks_for,
    current_device,
    kernel,
    launch,
)
from mpistrat.collectives.backends.gpu.kernels.table_cache import (
    Layout,
    addresses,
    column,
    table_for,
)
from mpistrat.errors import UsageError
from mpistrat.types import Array

__all__ = [
    "CAST_PIECE",
    "PIECE",
    "can_cast",
    "cast",
    "concatenate",
    "copy",
    "joined",
    "move",
    "pack",
    "unpack",
]

PIECE = np.dtype(
    [
        ("from", np.uint64),
        ("to", np.uint64),
        ("row_bytes", np.uint64),
        ("rows", np.uint64),
        ("from_stride", np.uint64),
        ("to_stride", np.uint64),
    ]
)
"""``Piece`` of pieces.cu."""

CAST_PIECE = np.dtype([("from", np.uint64), ("to", np.uint64), ("count", np.uint64)])
"""``CastPiece`` of cast.cu."""

_COPIED = Layout(  # chunks of four accesses of 16 bytes a thread
    PIECE, chunk=16384, sizes=lambda pieces: pieces["row_bytes"] * pieces["rows"]
)
_CONVERTED = Layout(CAST_PIECE, chunk=4096, sizes=lambda pieces: pieces["count"])
_NBYTES, _SIZE = attrgetter("nbytes"), attrgetter("size")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def move(pieces: Array) -> None:
    """Copy each piece of a table; no destination may overlap anything else. **Local.**

    Parameters
    ----------
    pieces
        Of dtype `PIECE`: rows of bytes at equal distances.
    """
    _launch("move_pieces", "pieces", _COPIED, pieces)


def copy(sources: Sequence[Any], results: Sequence[Any]) -> None:
    """Copy arrays to others of the same dtypes and sizes. **Local.**"""
    pieces = np.zeros(len(results), PIECE)
    pieces["from"], pieces["to"] = addresses(sources), addresses(results)
    pieces["row_bytes"], pieces["rows"] = column(map(_NBYTES, results)), 1
    move(pieces)


def pack(arrays: Sequence[Any], to: int) -> None:
    """Copy arrays one after the other to an address. **Local.**"""
    move(_flat(arrays, to, into_arrays=False))


def unpack(address: int, arrays: Sequence[Any]) -> None:
    """Copy what lies one after the other at an address into arrays. **Local.**"""
    move(_flat(arrays, address, into_arrays=True))


def _flat(arrays: Sequence[Any], address: int, *, into_arrays: bool) -> Array:
    sizes = column(map(_NBYTES, arrays))
    pieces = np.zeros(len(sizes), PIECE)
    here, there = ("to", "from") if into_arrays else ("from", "to")
    pieces[here] = addresses(arrays)
    pieces[there] = np.cumsum(sizes) - sizes + np.uint64(address)
    pieces["row_bytes"], pieces["rows"] = sizes, 1
    return pieces


def concatenate(parts: Sequence[Any], axis: int, out: Any) -> None:
    """Join arrays of one dtype, of any lengths along the axis, into `out`. **Local.**"""
    begins = [part.data.ptr for part in parts]
    lengths = [part.shape[axis] for part in parts]
    move(joined(begins, lengths, out.data.ptr, axis, out.shape, out.itemsize))


def joined(
    addresses: Sequence[int],
    lengths: Sequence[int],
    out: int,
    axis: int,
    shape: tuple[int, ...],
    itemsize: int,
) -> Array:
    """Return the pieces that join arrays into one.

    Parameters
    ----------
    addresses, lengths
        Of the parts: where they are, and how long along the axis.
    out, shape
        The whole: its address and its shape.
    axis
        From 0.
    itemsize
        Size of an element.
    """
    if sum(lengths) != shape[axis]:
        raise UsageError(
            f"parts of lengths {list(lengths)} along axis {axis} for a shape {shape}; expected"
            f" {shape[axis]} in all"
        )
    below = prod(shape[axis + 1 :]) * itemsize
    ends = list(accumulate(lengths))
    pieces = np.zeros(len(lengths), PIECE)
    pieces["from"] = np.array(addresses, np.uint64)
    begins = [out + (end - n) * below for end, n in zip(ends, lengths, strict=True)]
    pieces["to"] = np.array(begins, np.uint64)
    row_bytes = np.array([n * below for n in lengths], np.uint64)
    pieces["row_bytes"], pieces["from_stride"] = row_bytes, row_bytes
    pieces["rows"], pieces["to_stride"] = prod(shape[:axis]), shape[axis] * below
    return pieces


def cast(sources: Sequence[Any], results: Sequence[Any]) -> None:
    """Convert arrays of one floating dtype to another, rounding to nearest even. **Local.**

    Parameters
    ----------
    sources, results
        As many of one as of the other, of equal sizes; all sources of one dtype, and all results.
    """
    kinds = {(one.dtype, two.dtype) for one, two in zip(sources, results, strict=True)}
    if not kinds:
        return
    if len(kinds) > 1 or not can_cast(*next(iter(kinds))):
        names = sorted((one.name, two.name) for one, two in kinds)
        raise UsageError(f"cast of {names}; expected one pair of {', '.join(_FLOATS)}")
    pieces = np.zeros(len(sources), CAST_PIECE)
    pieces["from"], pieces["to"] = addresses(sources), addresses(results)
    pieces["count"] = column(map(_SIZE, results))
    types = (source.type_name(results[0].dtype), source.type_name(sources[0].dtype))
    _launch("cast", "cast", _CONVERTED, pieces, types)


@lru_cache(maxsize=256)  # the names of dtypes are slow
def can_cast(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Tell whether `cast` converts arrays of one dtype to another."""
    return given.name in _FLOATS and wanted.name in _FLOATS


def _launch(
    name: str, file: str, layout: Layout, pieces: Array, types: tuple[str, ...] = ()
) -> None:
    table = table_for(layout, pieces)
    if table.chunks == 0:
        return
    device = current_device()
    function = kernel(device, name, *types, file=file)
    launch(function, blocks_for(device, table.chunks), table.content)
