"""Reduce over all ranks; every rank gets the result."""

from __future__ import annotations

from mpistrat.collectives.arrays.conversion import as_operand, flat
from mpistrat.collectives.arrays.results import check_out, deliver, landing
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.exact_reduction import reduce_exactly
from mpistrat.tables.reduction_ops import carried, combine, narrow, result_dtype
from mpistrat.types import Array, ArrayLike

__all__ = ["allreduce", "allreduce_signature"]


def allreduce(gate: Gate, array: ArrayLike, op: str, out: Array | None) -> Steps:
    """See `Communicator.allreduce`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    own.reductions.require(op, source.dtype)
    if out is not None:
        check_out(out, source.shape, result_dtype(op, source.dtype), "allreduce", source)
    return own.run(_steps(own, source, op, out))


def allreduce_signature(source: Array, op: str) -> Signature:
    """Return what must agree on all ranks."""
    return Signature("allreduce", op, source.dtype, source.shape)


def _steps(gate: GateOfCall, source: Array, op: str, out: Array | None) -> Steps:
    signature = allreduce_signature(source, op)
    how = gate.reductions.carried(op, source.dtype)
    if source.nbytes <= gate.inline_bytes:
        how = carried(op, source.dtype, is_exact=False)  # what is shown is combined here
    send = flat(source.astype(how.dtype, copy=False))
    if isinstance(gate, Gate) and send.nbytes <= gate.inline_bytes:
        yield from gate.cross(signature, payload=send)
        total = combine(how.op, gate.payloads(send))
    else:
        total = landing(out, send)
        yield from reduce_exactly(gate, signature, how, send, total, gate.backend.allreduce)
    total = narrow(op, total, result_dtype(op, source.dtype), gate.size, how)
    return deliver(total.reshape(source.shape), out)
