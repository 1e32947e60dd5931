"""Reduce over all ranks; every rank gets the result."""

from __future__ import annotations

from mpistrat.collectives.arrays.conversion import as_operand, flat
from mpistrat.collectives.arrays.one_rank import reduced_alone
from mpistrat.collectives.arrays.results import check_out, deliver, landing, new_like
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import DeviceGate, GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.health.call_record import on_gpu
from mpistrat.collectives.operations.exact_reduction import reduce_exactly
from mpistrat.tables.reduction_ops import carried, combine, narrow, result_dtype
from mpistrat.types import Array, ArrayLike

__all__ = [
    "allreduce",
    "allreduce_from_gpu",
    "allreduce_signature",
    "short_allreduce_signature",
]


def allreduce(gate: Gate, array: ArrayLike, op: str, out: Array | None) -> Steps:
    """See `Communicator.allreduce`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    own.reductions.require(op, source.dtype)
    if out is not None:
        check_out(out, source.shape, result_dtype(op, source.dtype), "allreduce", source)
    if isinstance(own, DeviceGate):
        return own.run(_on_gpu(own, gate, source, op, out))
    return own.run(_steps(own, allreduce_signature(source, op), source, op, out))


def allreduce_from_gpu(gate: Gate, array: Array, op: str, gpu: int, out: Array | None) -> Steps:
    """Reduce an array of the host that was copied there from a GPU of this rank.

    All ranks have to call this alike.
    """
    gate.reductions.require(op, array.dtype)
    return _steps(gate, short_allreduce_signature(array, op, gpu), array, op, out)


def allreduce_signature(source: Array, op: str) -> Signature:
    """Return what must agree on all ranks."""
    return Signature("allreduce", op, source.dtype, source.shape)


def short_allreduce_signature(source: Array, op: str, gpu: int) -> Signature:
    """Return what must agree on all ranks, for arrays that were copied from GPUs."""
    return on_gpu(allreduce_signature(source, op), gpu, "staged")


def _on_gpu(own: DeviceGate, gate: Gate, source: Array, op: str, out: Array | None) -> Steps:
    """Reduce an array on a GPU, by the host if it is short.

    That is decided in the first step, when all calls before are over, so that all ranks agree.
    """
    short, dtype = own.backend.short, result_dtype(op, source.dtype)
    if short is None or not short.takes(source, dtype):
        return (yield from _steps(own, allreduce_signature(source, op), source, op, out))
    sent = flat(source)
    # In `out`, if it can be: a kernel that copies it there waits until the GPU turns to this rank.
    is_alike = sent.dtype == dtype
    result = landing(out, sent) if is_alike else new_like(sent, sent.size, dtype)

    def reduce(down: Array, up: Array) -> Steps:
        shaped, out = down.reshape(source.shape), up.reshape(source.shape)
        own.note_across()
        return allreduce_from_gpu(gate, shaped, op, own.device, out)

    yield from short.steps(sent, result, own.device, reduce)
    return deliver(result.reshape(source.shape), out)


def _steps(
    gate: GateOfCall, signature: Signature, source: Array, op: str, out: Array | None
) -> Steps:
    if gate.size == 1 and isinstance(gate, Gate):
        yield from gate.cross(signature)
        return reduced_alone(source, op, out)
    how = gate.reductions.carried(op, source.dtype)
    if source.nbytes <= gate.inline_bytes:
        how = carried(op, source.dtype, is_exact=False)  # what is shown is combined here
    send = flat(source.astype(how.dtype, copy=False))
    if isinstance(gate, Gate) and send.nbytes <= gate.inline_bytes:
        yield from gate.cross(signature, payload=send)
        total = combine(how.op, gate.payloads(send))
    else:
        total = landing(out, send)
        if isinstance(gate, DeviceGate):
            gate.announce(send, total)
        yield from reduce_exactly(gate, signature, how, send, total, gate.backend.allreduce)
    total = narrow(op, total, result_dtype(op, source.dtype), gate.size, how)
    return deliver(total.reshape(source.shape), out)
