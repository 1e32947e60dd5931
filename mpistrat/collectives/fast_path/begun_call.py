"""Answer what the kernels ask of calls that they begin themselves.

They ask as kernels/bindings/fast_path/fast_calls.h says. Such a call has one plain array of the
host (which the kernels may have made of a number or a list) or a list of them, axis 0 and equal
blocks. The kernels learn here, once for each kind of call, how it is shown to the other ranks and
recorded; and where it does not end soon, or not well, the operation's own steps go on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives import operations
from mpistrat.collectives.arrays.results import Spare
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.checking.headers import with_length
from mpistrat.collectives.health.call_record import kind_of
from mpistrat.collectives.operations.allgather import allgather_signature
from mpistrat.collectives.operations.allreduce import (
    allreduce_signature,
    short_allreduce_signature,
)
from mpistrat.collectives.operations.allreduce_many import allreduce_many, list_signature
from mpistrat.collectives.operations.alltoall import alltoall_signature
from mpistrat.collectives.operations.barrier import BARRIER
from mpistrat.collectives.operations.bcast import bcast_signature
from mpistrat.collectives.operations.gather import gather_signature
from mpistrat.collectives.operations.objects import (
    ALLGATHER_OBJECT,
    allgather_packed,
    bcast_object_signature,
    bcast_packed,
)
from mpistrat.collectives.operations.reduce import reduce_signature
from mpistrat.collectives.operations.reduce_scatter import reduce_scatter_signature
from mpistrat.collectives.operations.scatter import scatter_length, scatter_signature

__all__ = ["BegunCall"]


class BegunCall(NamedTuple):
    """One call, as the kernels name it.

    Attributes
    ----------
    method
        A method of `Communicator`.
    array
        What this rank brings, of lists a tuple of arrays; None if nothing.
    op
        A reduction; None for calls that have none.
    number
        What :attr:`root`, :attr:`gpu` or :attr:`bucket_bytes` reads, whichever the method takes;
        else 0.
    timeout
        Seconds to wait, where the call has to be ended; None for the default.
    transfer
        Which of its transfers is under way, where the call has to be ended; a list has one for
        each dtype.
    """

    method: str
    array: Any
    op: Any
    number: int
    timeout: float | None = None
    transfer: int = 0

    @property
    def is_started(self) -> bool:
        """Whether the method returns a `Work`, to be waited for later."""
        return self.method in _NONBLOCKING or self.method == "allreduce_soon"

    @property
    def root(self) -> int:
        """The rank that the call names as its root."""
        return self.number

    @property
    def gpu(self) -> int:
        """The index of the GPU from which the array was copied."""
        return self.number

    @property
    def bucket_bytes(self) -> int | None:
        """The `bucket_bytes` of a list, if some were named."""
        return self.number or None

    @property
    def _operation(self) -> str:
        return _NONBLOCKING.get(self.method, self.method)

    def ticket(self, gate: Gate, label: str | None) -> tuple[int, int, int, int, int, int]:
        """Return digest, extra, bytes, and the numbers of the record's texts. **Local.**"""
        length, array = self._length(gate), self.array
        kind = kind_of(_OPERATIONS[self._operation].signature(gate, self), label)
        if length is None:
            return kind.digest, 0, kind.nbytes, kind.op, kind.reduction, kind.dtype
        nbytes = 0 if array is None else array.nbytes
        digest = with_length(kind.digest, length)
        return digest, length, nbytes, kind.op, kind.reduction, kind.dtype

    def _length(self, gate: Gate) -> int | None:
        """Return what is mixed into the digest, of calls of rows (`Gate.carry_rows`)."""
        if self._operation not in _OF_ROWS:
            return None
        if self._operation == "scatter":
            return scatter_length(gate, self.array, self.root, 0)
        return int(np.shape(self.array)[0])

    def steps(self, gate: Gate, out: Any, is_given: bool) -> Steps:
        """Return the steps of the call in its operation's file.

        Parameters
        ----------
        gate
            Of the communicator.
        out
            Where the kernels write the result, of lists a list of arrays.
        is_given
            Whether that is the user's, and not new.
        """
        may_be_wrong = not is_given and self._operation in _OF_ROWS
        place = Spare(out) if out is not None and may_be_wrong else out
        return _OPERATIONS[self._operation].steps(gate, self, place)


class _Operation(NamedTuple):
    signature: Callable[[Gate, BegunCall], Signature]
    steps: Callable[[Gate, BegunCall, Any], Steps]


_OF_ROWS = ("allgather", "gather", "scatter", "alltoall")  # whose results have guessed lengths
_ALLREDUCE = _Operation(
    lambda gate, call: allreduce_signature(call.array, call.op),
    lambda gate, call, out: operations.allreduce(gate, call.array, call.op, out),
)
_FROM_GPU = _Operation(
    lambda gate, call: short_allreduce_signature(call.array, call.op, call.gpu),
    lambda gate, call, out: operations.allreduce_from_gpu(
        gate, call.array, call.op, call.gpu, out
    ),
)
_OF_A_LIST = _Operation(
    lambda gate, call: list_signature(
        list(call.array),
        call.op,
        gate.bucket_bytes if call.bucket_bytes is None else call.bucket_bytes,
    ),
    lambda gate, call, out: allreduce_many(
        gate, call.array, call.op, call.bucket_bytes, out, call.transfer
    ),
)
_OPERATIONS = {
    "allreduce": _ALLREDUCE,
    "allreduce_many": _OF_A_LIST,
    "allreduce_soon": _ALLREDUCE,
    "_allreduce_from_gpu": _FROM_GPU,
    "reduce": _Operation(
        lambda gate, call: reduce_signature(call.array, call.op, call.root),
        lambda gate, call, out: operations.reduce(gate, call.array, call.op, call.root, out),
    ),
    "reduce_scatter": _Operation(
        lambda gate, call: reduce_scatter_signature(call.array, call.op, 0),
        lambda gate, call, out: operations.reduce_scatter(gate, call.array, call.op, 0, out),
    ),
    "bcast": _Operation(
        lambda gate, call: bcast_signature(call.array, call.root),
        lambda gate, call, out: operations.bcast(gate, call.array, call.root, out),
    ),
    "allgather": _Operation(
        lambda gate, call: allgather_signature(call.array, 0),
        lambda gate, call, out: operations.allgather(gate, call.array, 0, out),
    ),
    "gather": _Operation(
        lambda gate, call: gather_signature(call.array, call.root, 0),
        lambda gate, call, out: operations.gather(gate, call.array, call.root, 0, out),
    ),
    "scatter": _Operation(
        lambda gate, call: scatter_signature(call.root, 0),
        lambda gate, call, out: operations.scatter(gate, call.array, call.root, 0, out),
    ),
    "alltoall": _Operation(
        lambda gate, call: alltoall_signature(call.array, 0),
        lambda gate, call, out: operations.alltoall(gate, call.array, None, 0, out),
    ),
    "_bcast_packed": _Operation(
        lambda gate, call: bcast_object_signature(call.root),
        lambda gate, call, out: bcast_packed(gate, call.array, call.root, out),
    ),
    "_allgather_packed": _Operation(
        lambda gate, call: ALLGATHER_OBJECT,
        lambda gate, call, out: allgather_packed(gate, call.array, out),
    ),
    "barrier": _Operation(
        lambda gate, call: BARRIER, lambda gate, call, out: operations.barrier(gate)
    ),
}
_NONBLOCKING = {f"i{name}": name for name in _OPERATIONS if not name.startswith("_")}
