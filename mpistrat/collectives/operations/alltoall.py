"""Exchange blocks of rows between all pairs of ranks."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial

import numpy as np

from mpistrat.collectives.arrays.conversion import as_operand, check_axis
from mpistrat.collectives.arrays.results import Out, check_out_of_rows, deliver_rows, room
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, row_signature, to_rows
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.types import Array, ArrayLike

__all__ = ["alltoall", "alltoall_signature"]

_UNEVEN = -1  # in place of a length: blocks have lengths of their own


def alltoall(
    gate: Gate,
    array: ArrayLike,
    splits: Sequence[int] | None,
    axis: int,
    out: Out = None,
) -> Steps:
    """See `Communicator.alltoall`."""
    source = as_operand(array)
    own = gate_for(gate, source)
    axis = check_axis(axis, source.ndim, "alltoall")
    check_out_of_rows(out, source, axis, "alltoall")
    return own.run(_steps(own, source, _lengths(source.shape[axis], splits, gate.size), axis, out))


def _lengths(rows: int, splits: Sequence[int] | None, size: int) -> list[int]:
    if splits is None:
        if rows % size:
            raise UsageError(
                f"alltoall: {rows} rows cannot be cut in {size} equal blocks; expected a multiple"
                f" of {size}, or splits= with the rows for each rank"
            )
        return [rows // size] * size
    try:
        lengths = [operator.index(n) for n in splits]
    except TypeError as error:
        raise ArgumentTypeError(
            f"alltoall: splits={splits!r}: {error}; expected a list of {size} whole numbers"
        ) from error
    if len(lengths) != size or min(lengths) < 0 or sum(lengths) != rows:
        raise UsageError(
            f"alltoall: splits={lengths}; expected {size} numbers of at least 0 that add up to"
            f" the {rows} rows of the array"
        )
    return lengths


def alltoall_signature(source: Array, axis: int) -> Signature:
    """Return what must agree on all ranks."""
    agreed = row_signature(source.shape, axis)
    return Signature("alltoall", None, source.dtype, agreed, None, axis)


def _steps(gate: GateOfCall, source: Array, lengths: list[int], axis: int, out: Out) -> Steps:
    signature = alltoall_signature(source, axis)
    rows, send_counts = to_rows(source, axis), row_counts(lengths, source.shape, axis)
    is_even, transfer = min(lengths) == max(lengths), None
    if is_even and gate.may_guess(source.nbytes):
        received = room(out, rows, rows.size, axis)
        counts = send_counts  # as all ranks send equal blocks
        transfer = partial(gate.backend.alltoall, rows, received, counts, counts, counts[0])
    length = source.shape[axis] if is_even else _UNEVEN
    if (yield from gate.carry_rows(signature, length, transfer, source.nbytes)):
        return deliver_rows(from_rows(received, source.shape[axis], source, axis), out, "alltoall")
    # The guess was wrong, or there was none: each pair of ranks exchanges its length first.
    incoming = np.empty(gate.size, np.int64)
    ones = [1] * gate.size
    mine = np.array(lengths, np.int64)
    yield from gate.host_backend.alltoall(mine, incoming, ones, ones)
    counts = row_counts(incoming.tolist(), source.shape, axis)
    received = yield from gate.new_like(rows, sum(counts))
    yield from gate.backend.alltoall(rows, received, send_counts, counts)
    total = from_rows(received, int(incoming.sum()), source, axis)
    return deliver_rows(total, out, "alltoall")
