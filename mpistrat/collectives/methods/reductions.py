"""The reductions as methods: signatures and documentation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpistrat.collectives import operations
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.fast_path.decorator import with_fast_path
from mpistrat.collectives.methods.base import CallStarter
from mpistrat.collectives.progress.work import Work
from mpistrat.types import Array, ArrayLike

__all__ = ["ReductionMethods"]


class ReductionMethods(CallStarter):
    """The methods of a `Communicator` that reduce; see there for what they share."""

    _gate: Gate

    @with_fast_path
    def allreduce(
        self,
        array: ArrayLike,
        op: str = "sum",
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Reduce over all ranks; every rank gets the result.

        Parameters
        ----------
        array
            Equal shape and dtype on all ranks.
        op
            ``sum``, ``prod``, ``min``, ``max``, ``and``, ``or``, ``xor`` or ``mean``.
        out
            Where to put the result (may be `array`); default a new array.
        timeout
            Seconds to wait.

        Returns
        -------
        numpy.ndarray
            Shape and dtype of `array` (float64 for the mean of integers and bool).

        References
        ----------
        MPI 5.0, section 6.9.6 (MPI_Allreduce).
        """
        there = self._gate.device_backend
        if there is not None and there.short is not None and timeout is None:
            result: Array | None = there.short.allreduce(self, array, op, out)
            if result is not None:
                return result
        found: Array = self._call(timeout, operations.allreduce, array, op, out)
        return found

    @with_fast_path
    def _allreduce_from_gpu(
        self, array: Array, op: str, gpu: int, *, out: Array | None = None
    ) -> Array:
        """All-reduce what was copied to the host from the GPU of that index (short_arrays/)."""
        found: Array = self._call(None, operations.allreduce_from_gpu, array, op, gpu, out)
        return found

    @with_fast_path
    def iallreduce(
        self, array: ArrayLike, op: str = "sum", *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`allreduce`.

        A result on a GPU, of this and every other nonblocking call, is ordered with the stream
        that was current when the call was made, wherever it is waited for: use it on
        that stream, or let another one wait for it (``cupy.cuda.Stream.wait_event``).
        """
        if self._gate.device_backend is None or isinstance(array, np.ndarray):
            return self._start_behind(operations.allreduce, array, op, out)
        # Which way an array on a GPU goes is known once the calls before this one are over.
        return self._start(operations.allreduce, array, op, out)

    @with_fast_path
    def allreduce_soon(
        self, array: ArrayLike, op: str = "sum", *, out: Array | None = None
    ) -> Array | Work[Array]:
        """Do :meth:`allreduce`, for up to 2 ms; then return a `Work` that ends it.

        For callers that must not block for long, such as an event loop. Where the peers are there
        already, nothing is faster.
        """
        return self.iallreduce(array, op, out=out)

    @with_fast_path
    def allreduce_many(
        self,
        arrays: Sequence[ArrayLike],
        op: str = "sum",
        *,
        bucket_bytes: int | None = None,
        out: Sequence[Array] | None = None,
        timeout: float | None = None,
    ) -> list[Array]:
        """Reduce each array of a list over all ranks, by few transfers.

        Parameters
        ----------
        arrays
            Equal in number, shapes and dtypes on all ranks; dtypes may be mixed.
        op
            As in :meth:`allreduce`.
        bucket_bytes
            Size of a message; default ``MPISTRAT_FUSION_BYTES``. Equal on all ranks.
        out
            An array for each result, of the result's shape and dtype; each may be its own
            source, and must not overlap any other.
        timeout
            Seconds to wait.

        Notes
        -----
        One transfer for each dtype. Where arrays are packed (by the backend ``mpi``, on GPUs, and
        in graphs of TensorFlow), `bucket_bytes` limits a transfer.
        """
        found: list[Array] = self._call(
            timeout, operations.allreduce_many, arrays, op, bucket_bytes, out
        )
        return found

    @with_fast_path
    def iallreduce_many(
        self,
        arrays: Sequence[ArrayLike],
        op: str = "sum",
        *,
        bucket_bytes: int | None = None,
        out: Sequence[Array] | None = None,
    ) -> Work[list[Array]]:
        """Start :meth:`allreduce_many`."""
        return self._start_behind(operations.allreduce_many, arrays, op, bucket_bytes, out)

    @with_fast_path
    def reduce(
        self,
        array: ArrayLike,
        op: str = "sum",
        root: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Reduce over all ranks; `root` gets the result, the others None.

        Arguments as in :meth:`allreduce`; `out` counts at the root only.
        """
        found: Array | None = self._call(timeout, operations.reduce, array, op, root, out)
        return found

    @with_fast_path
    def ireduce(
        self, array: ArrayLike, op: str = "sum", root: int = 0, *, out: Array | None = None
    ) -> Work[Array | None]:
        """Start :meth:`reduce`."""
        return self._start_behind(operations.reduce, array, op, root, out)

    @with_fast_path
    def reduce_scatter(
        self,
        array: ArrayLike,
        op: str = "sum",
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Reduce over all ranks; every rank gets its piece of the result along `axis`.

        The pieces are as even as can be: the first ``rows % size`` ranks get one row more. `out`
        has the shape of this rank's piece.
        """
        found: Array = self._call(timeout, operations.reduce_scatter, array, op, axis, out)
        return found

    @with_fast_path
    def ireduce_scatter(
        self, array: ArrayLike, op: str = "sum", axis: int = 0, *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`reduce_scatter`."""
        return self._start_behind(operations.reduce_scatter, array, op, axis, out)
