"""Cut the root's array along an axis and give every rank its piece."""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.arrays import as_array, check_axis
from mpistrat.collectives.base import Steps
from mpistrat.collectives.fingerprint import Signature
from mpistrat.collectives.gate import Gate
from mpistrat.collectives.objects import bcast_object
from mpistrat.collectives.roots import check_root
from mpistrat.collectives.rows import even_lengths, from_rows, row_counts, to_rows
from mpistrat.errors import UsageError
from mpistrat.types import Array, ArrayLike

__all__ = ["scatter"]

_MAX_NDIM = 64  # NumPy's limit; only the root knows the dimensions of its array


def scatter(gate: Gate, array: ArrayLike | None, root: int, axis: int) -> Steps:
    """See `Communicator.scatter`."""
    check_root(root, gate.size, "scatter")
    if gate.rank != root:
        if array is not None:
            raise UsageError(
                f"scatter: rank {gate.rank} gave an array, but the root is {root}; expected None"
                " on the other ranks"
            )
        check_axis(axis, _MAX_NDIM, "scatter")
        return _steps(gate, None, root, axis)
    if array is None:
        raise UsageError(f"scatter: the root (rank {root}) gave None; expected its array")
    source = as_array(array)
    check_axis(axis, source.ndim, "scatter")
    return _steps(gate, source, root, axis)


def _steps(gate: Gate, source: Array | None, root: int, axis: int) -> Steps:
    nbytes = 0 if source is None else source.nbytes
    yield from gate.cross(Signature("scatter", None, None, None, root, axis), nbytes=nbytes)
    shape, dtype = yield from bcast_object(gate, _form(source), root)
    axis %= len(shape)
    lengths = even_lengths(shape[axis], gate.size)
    counts = row_counts(lengths, shape, axis)
    piece = np.empty(counts[gate.rank], dtype)
    if sum(counts):
        rows = None if source is None else to_rows(source, axis)
        yield from gate.backend.scatter(rows, piece, counts, root)
    like = np.broadcast_to(np.empty((), dtype), shape)
    return from_rows(piece, lengths[gate.rank], like, axis)


def _form(source: Array | None) -> tuple[tuple[int, ...], np.dtype] | None:
    return None if source is None else (source.shape, source.dtype)
