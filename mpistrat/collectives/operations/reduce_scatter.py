"""Reduce over all ranks; every rank gets its piece of the result."""

from __future__ import annotations

from functools import partial

from mpistrat.collectives.arrays.conversion import as_operand, check_axis
from mpistrat.collectives.arrays.results import check_out, deliver, room
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, to_rows
from mpistrat.collectives.operations.exact_reduction import reduce_exactly
from mpistrat.tables.even_cut import even_lengths
from mpistrat.tables.reduction_ops import narrow, result_dtype
from mpistrat.types import Array, ArrayLike

__all__ = ["reduce_scatter", "reduce_scatter_signature"]


def reduce_scatter(
    gate: Gate, array: ArrayLike, op: str, axis: int, out: Array | None = None
) -> Steps:
    """See `Communicator.reduce_scatter`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    own.reductions.require(op, source.dtype)
    axis = check_axis(axis, source.ndim, "reduce_scatter")
    shape = list(source.shape)
    shape[axis] = even_lengths(shape[axis], gate.size)[gate.rank]
    check_out(out, tuple(shape), result_dtype(op, source.dtype), "reduce_scatter", source)
    return own.run(_steps(own, source, op, axis, out))


def reduce_scatter_signature(source: Array, op: str, axis: int) -> Signature:
    """Return what must agree on all ranks."""
    return Signature("reduce_scatter", op, source.dtype, source.shape, None, axis)


def _steps(gate: GateOfCall, source: Array, op: str, axis: int, out: Array | None) -> Steps:
    signature = reduce_scatter_signature(source, op, axis)
    lengths = even_lengths(source.shape[axis], gate.size)
    counts = row_counts(lengths, source.shape, axis)
    how = gate.reductions.carried(op, source.dtype)
    send = to_rows(source.astype(how.dtype, copy=False), axis)
    piece = room(out, send, counts[gate.rank], axis)
    transfer = partial(gate.backend.reduce_scatter, counts=counts)
    yield from reduce_exactly(gate, signature, how, send, piece, transfer)
    piece = narrow(op, piece, result_dtype(op, source.dtype), gate.size, how)
    return deliver(from_rows(piece, lengths[gate.rank], source, axis), out)
