"""Concatenate all ranks' arrays along an axis; every rank gets the result."""

from __future__ import annotations

from functools import partial

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array, check_axis
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, row_signature, to_rows
from mpistrat.types import Array, ArrayLike

__all__ = ["allgather"]


def allgather(gate: Gate, array: ArrayLike, axis: int) -> Steps:
    """See `Communicator.allgather`."""
    source = as_array(array)
    return _steps(gate, source, check_axis(axis, source.ndim, "allgather"))


def _steps(gate: Gate, source: Array, axis: int) -> Steps:
    agreed = row_signature(source.shape, axis)
    signature = Signature("allgather", None, source.dtype, agreed, None, axis)
    rows, length = to_rows(source, axis), source.shape[axis]
    lengths, counts, transfer = [length] * gate.size, [rows.size] * gate.size, None
    # Guess that all ranks bring as many rows: then the data travels with the headers.
    if gate.may_guess(source.nbytes * gate.size):
        everything = np.empty(rows.size * gate.size, source.dtype)
        transfer = partial(gate.backend.allgather, rows, everything, counts)
    if not (yield from gate.carry_rows(signature, length, transfer, source.nbytes)):
        lengths = gate.extras.tolist()
        counts = row_counts(lengths, source.shape, axis)
        everything = np.empty(sum(counts), source.dtype)
        if everything.size:
            yield from gate.backend.allgather(rows, everything, counts)
    return from_rows(everything, sum(lengths), source, axis)
