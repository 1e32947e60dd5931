"""Concatenate all ranks' arrays along an axis; the root gets the result."""

from __future__ import annotations

from functools import partial

from mpistrat.collectives.arrays.conversion import as_operand, check_axis
from mpistrat.collectives.arrays.results import Out, check_out_of_rows, deliver_rows, room
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, row_signature, to_rows
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.types import Array, ArrayLike

__all__ = ["gather", "gather_signature"]


def gather(gate: Gate, array: ArrayLike, root: int, axis: int, out: Out = None) -> Steps:
    """See `Communicator.gather`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    check_root(root, gate.size, "gather")
    axis = check_axis(axis, source.ndim, "gather")
    if gate.rank == root:
        check_out_of_rows(out, source, axis, "gather")
    return own.run(_steps(own, source, root, axis, out))


def gather_signature(source: Array, root: int, axis: int) -> Signature:
    """Return what must agree on all ranks."""
    agreed = row_signature(source.shape, axis)
    return Signature("gather", None, source.dtype, agreed, root, axis)


def _steps(gate: GateOfCall, source: Array, root: int, axis: int, out: Out) -> Steps:
    signature = gather_signature(source, root, axis)
    rows, length, is_root = to_rows(source, axis), source.shape[axis], gate.rank == root
    lengths, counts, transfer = [length] * gate.size, [rows.size] * gate.size, None
    everything = None
    # Guess that all ranks bring as many rows: then the data travels with the headers.
    if gate.may_guess(source.nbytes * gate.size):
        everything = room(out, rows, sum(counts), axis) if is_root else None
        transfer = partial(gate.backend.gather, rows, everything, counts, root)
    if not (yield from gate.carry_rows(signature, length, transfer, source.nbytes)):
        lengths = gate.extras.tolist()
        counts = row_counts(lengths, source.shape, axis)
        memory = yield from gate.new_like(rows, sum(counts) if is_root else 0)
        everything = memory if is_root else None
        if sum(counts):
            yield from gate.backend.gather(rows, everything, counts, root)
    if everything is None:
        return None
    return deliver_rows(from_rows(everything, sum(lengths), source, axis), out, "gather")
