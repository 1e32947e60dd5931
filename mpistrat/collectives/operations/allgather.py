"""Concatenate all ranks' arrays along an axis; every rank gets the result."""

from __future__ import annotations

from functools import partial

from mpistrat.collectives.arrays.conversion import as_operand, check_axis, new_like
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, row_signature, to_rows
from mpistrat.types import Array, ArrayLike

__all__ = ["allgather"]


def allgather(gate: Gate, array: ArrayLike, axis: int) -> Steps:
    """See `Communicator.allgather`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    return own.run(_steps(own, source, check_axis(axis, source.ndim, "allgather")))


def _steps(gate: GateOfCall, source: Array, axis: int) -> Steps:
    agreed = row_signature(source.shape, axis)
    signature = Signature("allgather", None, source.dtype, agreed, None, axis)
    rows, length = to_rows(source, axis), source.shape[axis]
    lengths, counts, transfer = [length] * gate.size, [rows.size] * gate.size, None
    # Guess that all ranks bring as many rows: then the data travels with the headers.
    if gate.may_guess(source.nbytes * gate.size):
        everything = new_like(rows, rows.size * gate.size)
        transfer = partial(gate.backend.allgather, rows, everything, counts)
    if not (yield from gate.carry_rows(signature, length, transfer, source.nbytes)):
        lengths = gate.extras.tolist()
        counts = row_counts(lengths, source.shape, axis)
        everything = yield from gate.new_like(rows, sum(counts))
        if everything.size:
            yield from gate.backend.allgather(rows, everything, counts)
    return from_rows(everything, sum(lengths), source, axis)
