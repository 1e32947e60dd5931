"""Copy and convert many arrays on a GPU by one launch: pack, unpack, concatenate, cast.

All launch on the current stream and do not wait. Arrays are CuPy's, in C order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.collectives.backends.gpu.kernels.launch import (
    blocks_for,
    current_device,
    kernel,
    launch,
)
from mpistrat.collectives.backends.gpu.kernels.tables import filled, table_dtype
from mpistrat.errors import UsageError
from mpistrat.types import Array

__all__ = ["CAST_PIECE", "PIECE", "cast", "concatenate", "joined", "move", "pack", "unpack"]

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

_CHUNK_BYTES = 16384  # four accesses of 16 bytes a thread
_CHUNK_COUNT = 4096
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def move(pieces: Array) -> None:
    """Copy each piece of a table; no destination may overlap anything else. **Local.**

    Parameters
    ----------
    pieces
        Of dtype `PIECE`: rows of bytes at equal distances.
    """
    _launch("move_pieces", "pieces", pieces, pieces["row_bytes"] * pieces["rows"], _CHUNK_BYTES)


def pack(arrays: Sequence[Any], to: int) -> None:
    """Copy arrays one after the other to an address. **Local.**"""
    move(_flat(arrays, to, into_arrays=False))


def unpack(address: int, arrays: Sequence[Any]) -> None:
    """Copy what lies one after the other at an address into arrays. **Local.**"""
    move(_flat(arrays, address, into_arrays=True))


def _flat(arrays: Sequence[Any], address: int, *, into_arrays: bool) -> Array:
    sizes = [one.nbytes for one in arrays]
    places = [address + end - size for end, size in zip(accumulate(sizes), sizes, strict=True)]
    pieces = np.zeros(len(arrays), PIECE)
    here, there = ("to", "from") if into_arrays else ("from", "to")
    pieces[here] = np.array([one.data.ptr for one in arrays], np.uint64)
    pieces[there] = np.array(places, np.uint64)
    pieces["row_bytes"], pieces["rows"] = sizes, 1
    return pieces


def concatenate(parts: Sequence[Any], axis: int, out: Any) -> None:
    """Join arrays of one dtype, of any lengths along the axis, into `out`. **Local.**"""
    addresses = [part.data.ptr for part in parts]
    lengths = [part.shape[axis] for part in parts]
    move(joined(addresses, lengths, out.data.ptr, axis, out.shape, out.itemsize))


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
    kinds = {(one.dtype.name, two.dtype.name) for one, two in zip(sources, results, strict=True)}
    if not kinds:
        return
    if len(kinds) > 1 or any(name not in _FLOATS for pair in kinds for name in pair):
        raise UsageError(f"cast of {sorted(kinds)}; expected one pair of {', '.join(_FLOATS)}")
    pieces = np.zeros(len(sources), CAST_PIECE)
    for name, arrays in (("from", sources), ("to", results)):
        pieces[name] = np.array([one.data.ptr for one in arrays], np.uint64)
    pieces["count"] = [one.size for one in results]
    types = (source.type_name(results[0].dtype), source.type_name(sources[0].dtype))
    _launch("cast", "cast", pieces, pieces["count"], _CHUNK_COUNT, types)


def _launch(
    name: str, file: str, pieces: Array, sizes: Array, chunk: int, types: tuple[str, ...] = ()
) -> None:
    table = np.zeros((), table_dtype(pieces.dtype))
    chunks, _memory = filled(table, pieces, sizes, chunk)
    if chunks == 0:
        return
    device = current_device()
    launch(kernel(device, name, *types, file=file), blocks_for(device, chunks), table)
