"""Reduce over all ranks; the root gets the result."""

from __future__ import annotations

from functools import partial

from mpistrat.collectives.arrays.conversion import as_operand, flat
from mpistrat.collectives.arrays.results import check_out, deliver, landing
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.exact_reduction import reduce_exactly
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.tables.reduction_ops import narrow, result_dtype
from mpistrat.types import Array, ArrayLike

__all__ = ["reduce", "reduce_signature"]


def reduce(gate: Gate, array: ArrayLike, op: str, root: int, out: Array | None) -> Steps:
    """See `Communicator.reduce`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    own.reductions.require(op, source.dtype)
    check_root(root, gate.size, "reduce")
    if gate.rank == root:
        check_out(out, source.shape, result_dtype(op, source.dtype), "reduce", source)
    return own.run(_steps(own, source, op, root, out))


def reduce_signature(source: Array, op: str, root: int) -> Signature:
    """Return what must agree on all ranks."""
    return Signature("reduce", op, source.dtype, source.shape, root)


def _steps(gate: GateOfCall, source: Array, op: str, root: int, out: Array | None) -> Steps:
    signature = reduce_signature(source, op, root)
    how = gate.reductions.carried(op, source.dtype)
    send = flat(source.astype(how.dtype, copy=False))
    total = landing(out, send) if gate.rank == root else None
    transfer = partial(gate.backend.reduce, root=root)
    yield from reduce_exactly(gate, signature, how, send, total, transfer)
    if total is None:
        return None
    total = narrow(op, total, result_dtype(op, source.dtype), gate.size, how)
    return deliver(total.reshape(source.shape), out)
