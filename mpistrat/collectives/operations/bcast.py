"""Copy the root's array to every rank."""

from __future__ import annotations

from functools import partial

import numpy as np

from mpistrat.collectives.arrays.conversion import as_operand, flat
from mpistrat.collectives.arrays.results import check_out, deliver, landing
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.errors import ArgumentTypeError
from mpistrat.types import Array, ArrayLike

__all__ = ["bcast", "bcast_signature"]


def bcast(gate: Gate, array: ArrayLike, root: int, out: Array | None) -> Steps:
    """See `Communicator.bcast`."""
    if array is None:
        raise ArgumentTypeError(
            "bcast of None; expected an array on all ranks: on those that are not the root one of"
            " its shape and dtype, whose content is ignored; bcast_object takes None there"
        )
    source = as_operand(array)
    own = gate_for(gate, source)
    check_root(root, gate.size, "bcast")
    check_out(out, source.shape, source.dtype, "bcast", source)
    return own.run(_steps(own, source, root, out))


def bcast_signature(source: Array, root: int) -> Signature:
    """Return what must agree on all ranks."""
    return Signature("bcast", None, source.dtype, source.shape, root)


def _steps(gate: GateOfCall, source: Array, root: int, out: Array | None) -> Steps:
    signature = bcast_signature(source, root)
    send = flat(source)
    buffer = landing(out, send)
    if gate.rank == root:
        np.copyto(buffer, send)
    transfer = partial(gate.backend.bcast, buffer, root)
    yield from gate.carry(signature, transfer, is_empty=not buffer.size)
    return deliver(buffer.reshape(source.shape), out)
