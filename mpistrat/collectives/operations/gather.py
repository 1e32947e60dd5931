"""Concatenate all ranks' arrays along an axis; the root gets the result."""

from __future__ import annotations

from functools import partial

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array, check_axis
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, row_signature, to_rows
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.types import Array, ArrayLike

__all__ = ["gather"]


def gather(gate: Gate, array: ArrayLike, root: int, axis: int) -> Steps:
    """See `Communicator.gather`."""
    source = as_array(array)
    check_root(root, gate.size, "gather")
    return _steps(gate, source, root, check_axis(axis, source.ndim, "gather"))


def _steps(gate: Gate, source: Array, root: int, axis: int) -> Steps:
    agreed = row_signature(source.shape, axis)
    signature = Signature("gather", None, source.dtype, agreed, root, axis)
    rows, length, is_root = to_rows(source, axis), source.shape[axis], gate.rank == root
    lengths, counts, transfer = [length] * gate.size, [rows.size] * gate.size, None
    everything = None
    # Guess that all ranks bring as many rows: then the data travels with the headers.
    if gate.may_guess(source.nbytes * gate.size):
        everything = np.empty(sum(counts), source.dtype) if is_root else None
        transfer = partial(gate.backend.gather, rows, everything, counts, root)
    if not (yield from gate.carry_rows(signature, length, transfer, source.nbytes)):
        lengths = gate.extras.tolist()
        counts = row_counts(lengths, source.shape, axis)
        everything = np.empty(sum(counts), source.dtype) if is_root else None
        if sum(counts):
            yield from gate.backend.gather(rows, everything, counts, root)
    if everything is None:
        return None
    return from_rows(everything, sum(lengths), source, axis)
