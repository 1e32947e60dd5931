"""The collective operations as methods: signatures and documentation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mpistrat.collectives import operations
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.native_methods import made_natively
from mpistrat.collectives.operations import fusion, objects
from mpistrat.collectives.outside_call import OutsideCall
from mpistrat.collectives.work import Work
from mpistrat.types import Array, ArrayLike

if TYPE_CHECKING:
    from mpistrat.collectives.progress_engine import Engine

__all__ = ["CollectiveMethods"]


class CollectiveMethods(ABC):
    """The methods of a `Communicator` that are collectives; see there for what they share."""

    _engine: Engine

    @abstractmethod
    def _start(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        """Check the arguments by calling `make`, and start the steps that it returns."""

    @abstractmethod
    def _start_behind(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        """Do the same, and let the call go on while Python computes, where the backend can."""

    def start_outside(self, signature: Signature) -> OutsideCall:
        """Start a call whose data another library carries, and which is checked here.

        Parameters
        ----------
        signature
            What must agree on all ranks.

        Notes
        -----
        **Collective**; see `OutsideCall` for what follows.
        """
        call = OutsideCall()
        return call.follow(self._engine, self._start(operations.outside, signature, call))

    # ---------------------------------------------------------------------------- reductions

    @made_natively
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
        work: Work[Array] = self._start(operations.allreduce, array, op, out)
        return work.wait(timeout)

    def iallreduce(
        self, array: ArrayLike, op: str = "sum", *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`allreduce`.

        A result on a GPU, of this and every other twin, is ordered with the stream that was
        current when the twin was called, wherever it is waited for: use it on that stream, or let
        another one wait for it (``cupy.cuda.Stream.wait_event``).
        """
        return self._start_behind(operations.allreduce, array, op, out)

    @made_natively
    def allreduce_soon(
        self, array: ArrayLike, op: str = "sum", *, out: Array | None = None
    ) -> Array | Work[Array]:
        """Do :meth:`allreduce`, for up to 2 ms; then return a `Work` that ends it.

        For callers that must not block for long, such as an event loop. Where the peers are there
        already, nothing is faster.
        """
        return self.iallreduce(array, op, out=out)

    def allreduce_many(
        self,
        arrays: Sequence[ArrayLike],
        op: str = "sum",
        *,
        bucket_bytes: int | None = None,
        out: Sequence[Array] | None = None,
        timeout: float | None = None,
    ) -> list[Array]:
        """Reduce each array of a list over all ranks, packed into few messages.

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
        One message for each dtype and each `bucket_bytes` of it.
        """
        work: Work[list[Array]] = self._start(fusion.allreduce_many, arrays, op, bucket_bytes, out)
        return work.wait(timeout)

    def iallreduce_many(
        self,
        arrays: Sequence[ArrayLike],
        op: str = "sum",
        *,
        bucket_bytes: int | None = None,
        out: Sequence[Array] | None = None,
    ) -> Work[list[Array]]:
        """Start :meth:`allreduce_many`."""
        return self._start_behind(fusion.allreduce_many, arrays, op, bucket_bytes, out)

    @made_natively
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
        work: Work[Array | None] = self._start(operations.reduce, array, op, root, out)
        return work.wait(timeout)

    def ireduce(
        self, array: ArrayLike, op: str = "sum", root: int = 0, *, out: Array | None = None
    ) -> Work[Array | None]:
        """Start :meth:`reduce`."""
        return self._start_behind(operations.reduce, array, op, root, out)

    @made_natively
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
        work: Work[Array] = self._start(operations.reduce_scatter, array, op, axis, out)
        return work.wait(timeout)

    def ireduce_scatter(
        self, array: ArrayLike, op: str = "sum", axis: int = 0, *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`reduce_scatter`."""
        return self._start_behind(operations.reduce_scatter, array, op, axis, out)

    # ------------------------------------------------------------------------------ movement

    @made_natively
    def bcast(
        self,
        array: ArrayLike,
        root: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Copy the root's array to every rank.

        Parameters
        ----------
        array
            The array at `root`; on other ranks one of the same shape and dtype, whose content is
            ignored.
        root
            Rank that has the data.
        out
            Where to put the copy (may be `array`); default a new array.
        timeout
            Seconds to wait.
        """
        work: Work[Array] = self._start(operations.bcast, array, root, out)
        return work.wait(timeout)

    def ibcast(self, array: ArrayLike, root: int = 0, *, out: Array | None = None) -> Work[Array]:
        """Start :meth:`bcast`."""
        return self._start_behind(operations.bcast, array, root, out)

    @made_natively
    def allgather(
        self,
        array: ArrayLike,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Concatenate all ranks' arrays in rank order along `axis`; every rank gets the result.

        Lengths along `axis` may differ between ranks; all else must agree. 0-d arrays
        are refused.

        Parameters
        ----------
        array
            What this rank brings.
        axis
            Dimension along which the arrays are put together.
        out
            Where to put the result, apart from `array`; default a new array.
        timeout
            Seconds to wait.

        Raises
        ------
        UsageError
            `out` has not as many rows as all ranks bring together, which is found out when they
            have come: the others have their results then.
        """
        work: Work[Array] = self._start(operations.allgather, array, axis, out)
        return work.wait(timeout)

    def iallgather(
        self, array: ArrayLike, axis: int = 0, *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`allgather`."""
        return self._start_behind(operations.allgather, array, axis, out)

    @made_natively
    def gather(
        self,
        array: ArrayLike,
        root: int = 0,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Concatenate as :meth:`allgather` does; `root` gets the result, the others None.

        `out` counts at the root only.
        """
        work: Work[Array | None] = self._start(operations.gather, array, root, axis, out)
        return work.wait(timeout)

    def igather(
        self, array: ArrayLike, root: int = 0, axis: int = 0, *, out: Array | None = None
    ) -> Work[Array | None]:
        """Start :meth:`gather`."""
        return self._start_behind(operations.gather, array, root, axis, out)

    @made_natively
    def scatter(
        self,
        array: ArrayLike | None,
        root: int = 0,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Cut the root's array along `axis` and give every rank its piece.

        Ranks other than `root` pass None. Pieces are as in :meth:`reduce_scatter`; `out` has the
        shape and dtype of this rank's.
        """
        work: Work[Array] = self._start(operations.scatter, array, root, axis, out)
        return work.wait(timeout)

    def iscatter(
        self, array: ArrayLike | None, root: int = 0, axis: int = 0, *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`scatter`."""
        return self._start_behind(operations.scatter, array, root, axis, out)

    @made_natively
    def alltoall(
        self,
        array: ArrayLike,
        splits: Sequence[int] | None = None,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Send block i of the rows along `axis` to rank i; return the blocks received, in order.

        Parameters
        ----------
        array
            Equal in dtype and in all lengths but that of `axis`.
        splits
            Rows for each rank, which may differ between ranks; default equal blocks.
        axis
            Dimension that is cut.
        out
            As of :meth:`allgather`.
        timeout
            Seconds to wait.
        """
        work: Work[Array] = self._start(operations.alltoall, array, splits, axis, out)
        return work.wait(timeout)

    def ialltoall(
        self,
        array: ArrayLike,
        splits: Sequence[int] | None = None,
        axis: int = 0,
        *,
        out: Array | None = None,
    ) -> Work[Array]:
        """Start :meth:`alltoall`."""
        return self._start_behind(operations.alltoall, array, splits, axis, out)

    @made_natively
    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until all ranks are here."""
        self._start(operations.barrier).wait(timeout)

    def ibarrier(self) -> Work[None]:
        """Start :meth:`barrier`."""
        return self._start_behind(operations.barrier)

    def empty(
        self,
        shape: int | Sequence[int],
        dtype: Any = float,
        *,
        shared: bool = False,
        device: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Return a new array that later calls read and write in place, without copies.

        Parameters
        ----------
        shape
            Equal on all ranks, as is `dtype`.
        dtype
            As for :func:`numpy.empty`.
        shared
            Whether the ranks of a node have one array together instead of one each: for results
            that all only read. An ``allreduce`` that is given it as ``out`` writes it once.
        device
            Where: ``"GPU:0"`` for this rank's first GPU, a full form as strategies have them, or
            the host (``"CPU:0"``, None). Ranks may name different GPUs, but not some a GPU and
            others the host.
        timeout
            Seconds to wait.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            Of zeros, or not initialised; on a GPU never initialised. Backends without registered
            memory give a plain array, as do GPUs whose carrier is ``nccl`` or ``staged``.

        Raises
        ------
        BackendUnavailableError
            On all ranks: some have not enough memory, no such GPU or no CuPy; or `shared` memory
            is wanted of a backend or a device that has none.

        Notes
        -----
        Long all-reduces from and to such arrays take about half the time. For a list, of gradients
        say, make one array and take its parts, one after the other: `allreduce_many` reads and
        writes them in place. The memory is given back when all ranks have dropped the array, and
        one more is made.

        On GPUs that the ranks map (``peer_memory``, docs/gpu.md) a call reads what all ranks, or
        its root, send from such arrays or parts of them where it is, and an ``allreduce`` whose
        results go to such memory on all ranks (``out=``) writes them there. Where only some ranks
        bring registered memory the call copies as it does with any other. What another rank reads
        is free again when the call returns. An array may outlive the communicator.
        """
        work: Work[Array] = self._start(operations.empty, shape, dtype, shared, device)
        return work.wait(timeout)

    def bcast_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> Any:
        """Return the root's `value` on every rank; pickled, so for small Python objects."""
        return self._start(objects.bcast_object, value, root).wait(timeout)

    def allgather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Return the list of all ranks' values, by rank; pickled, for small Python objects."""
        work: Work[list[Any]] = self._start(objects.allgather_object, value)
        return work.wait(timeout)
