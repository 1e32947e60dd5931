"""Concatenate all ranks' arrays along an axis; every rank gets the result."""

from __future__ import annotations

from functools import partial

from mpistrat.collectives.arrays.conversion import as_operand, check_axis
from mpistrat.collectives.arrays.results import Out, check_out_of_rows, deliver_rows, room
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, row_signature, to_rows
from mpistrat.types import Array, ArrayLike

__all__ = ["allgather", "allgather_signature"]


def allgather(gate: Gate, array: ArrayLike, axis: int, out: Out = None) -> Steps:
    """See `Communicator.allgather`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    axis = check_axis(axis, source.ndim, "allgather")
    check_out_of_rows(out, source, axis, "allgather")
    return own.run(_steps(own, source, axis, out))


def allgather_signature(source: Array, axis: int) -> Signature:
    """Return what must agree on all ranks."""
    agreed = row_signature(source.shape, axis)
    return Signature("allgather", None, source.dtype, agreed, None, axis)


def _steps(gate: GateOfCall, source: Array, axis: int, out: Out) -> Steps:
    signature = allgather_signature(source, axis)
    rows, length = to_rows(source, axis), source.shape[axis]
    lengths, counts, transfer = [length] * gate.size, [rows.size] * gate.size, None
    # Guess that all ranks bring as many rows: then the data travels with the headers.
    if gate.may_guess(source.nbytes * gate.size):
        everything = room(out, rows, rows.size * gate.size, axis)
        transfer = partial(gate.backend.allgather, rows, everything, counts)
    if not (yield from gate.carry_rows(signature, length, transfer, source.nbytes)):
        lengths = gate.extras.tolist()
        counts = row_counts(lengths, source.shape, axis)
        everything = yield from gate.new_like(rows, sum(counts))
        if everything.size:
            yield from gate.backend.allgather(rows, everything, counts)
    return deliver_rows(from_rows(everything, sum(lengths), source, axis), out, "allgather")
