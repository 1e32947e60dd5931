"""Reduce through the backend so that NaN wins minima and maxima, as in NumPy.

MPI leaves open what the minimum of NaN and a number is, and its libraries answer differently even
within one array. So ranks say in their headers whether they hold any NaN, and only if one does,
where it is goes round in a second reduction.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from mpistrat.collectives.arrays.results import new_like
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import GateOfCall
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Transfer
from mpistrat.tables.reduction_ops import Carried
from mpistrat.types import Array

__all__ = ["Nans", "reduce_exactly"]


def reduce_exactly(
    gate: GateOfCall,
    signature: Signature,
    how: Carried,
    send: Array,
    recv: Array | None,
    begin: Transfer,
) -> Steps:
    """Cross the gate and reduce `send` into `recv`, which is None where no result is wanted.

    `begin` makes a transfer of what to send, where to receive, and ``op=``.
    """
    if how.watches_nan and Nans.are_watched(gate, how, send):
        return _reduce_with_nans(gate, signature, how, (send, recv), begin)
    return gate.carry(signature, partial(begin, send, recv, op=how.op), is_empty=not send.size)


def _reduce_with_nans(
    gate: GateOfCall,
    signature: Signature,
    how: Carried,
    arrays: tuple[Array, Array | None],
    begin: Transfer,
) -> Steps:
    send, recv = arrays
    nans = Nans(gate, how, send)  # before a transfer in place overwrites them
    transfer = partial(begin, send, recv, op=how.op)
    yield from gate.carry(signature, transfer, extra=nans.flag, is_empty=not send.size)
    mine = nans.mask(gate)
    if mine is None:
        return
    anyone = None if recv is None else new_like(recv, recv.size, np.bool_)
    yield from begin(mine, anyone, op="or")
    if recv is not None and anyone is not None:
        recv[anyone] = np.nan


class Nans:
    """Where this rank's part of a reduction is NaN, as far as that could be lost.

    Attributes
    ----------
    flag
        1 if it holds any, else 0; for the header.
    """

    def __init__(self, gate: GateOfCall, how: Carried, array: Array) -> None:
        self._mine = np.isnan(array) if self.are_watched(gate, how, array) else None
        self.flag = 0 if self._mine is None else int(self._mine.any())

    @staticmethod
    def are_watched(gate: GateOfCall, how: Carried, array: Array) -> bool:
        """Tell whether NaN in `array` could be lost."""
        return how.watches_nan and array.dtype.kind == "f" and not gate.carries_headers

    def mask(self, gate: GateOfCall) -> Array | None:
        """Return where this rank's are, if any rank raised its flag in the call just crossed."""
        return self._mine if self._mine is not None and gate.extras.any() else None
