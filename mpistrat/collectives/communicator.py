"""The communicator: the one way in to every collective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from mpistrat.cluster import log
from mpistrat.cluster.topology import Topology
from mpistrat.collectives import agreement, fusion, objects, operations, shutdown
from mpistrat.collectives.base import Backend, Steps
from mpistrat.collectives.gate import Gate
from mpistrat.collectives.registry import open_backend
from mpistrat.collectives.work import Engine, Work
from mpistrat.errors import CommunicationError
from mpistrat.types import Array, ArrayLike

__all__ = ["Communicator"]


class Communicator:
    """Ordered, checked and timed collectives over the ranks of a job.

    All methods but the properties are **Collective**: every rank makes the same calls in the same
    order with matching arguments; otherwise every rank gets `MismatchError`. They take anything
    that :func:`~mpistrat.collectives.arrays.as_array` takes, on the host, of equal dtype on all
    ranks, and return new NumPy arrays owned by the caller, or `out`. Where a method has an
    ``i``-twin (``allreduce``, ``iallreduce``), the twin starts the call and returns a `Work`; the
    arrays must not be changed before it is done. Twins finish in the order of their start.

    Every blocking method takes ``timeout``, in seconds (default ``MPISTRAT_TIMEOUT``).

    Attributes
    ----------
    label
        What the calls that follow are made for, or None. It must agree on all ranks too, and is
        shown in mismatches; strategies put their own arguments here.

    Parameters
    ----------
    comm
        An mpi4py intra-communicator, which is duplicated and never used itself; a
        `ThreadComm` (ranks as threads); None for COMM_WORLD, or for this process alone if no
        launcher started it.
    backend
        A name of the registry; ``"auto"`` picks one.

    Raises
    ------
    ClusterError
        The ranks run different versions or settings; or the launcher meant a larger job.
    BackendNotFoundError, BackendUnavailableError
        `backend` is not known, or cannot work here.

    Notes
    -----
    **Collective.** Sums of float16 and bfloat16 are accumulated in float32 and rounded once.
    Results are the same bits on every rank and in every run of the same job.
    """

    def __init__(self, comm: Any = None, backend: str = "auto") -> None:
        self.label: str | None = None
        self._backend, refusal = open_backend(comm, backend)
        self._gate = Gate(self._backend)
        self._engine = Engine(self._gate)
        is_job = self._backend.capabilities().processes and self.size > 1
        if is_job:
            shutdown.watch(self)
        if refusal is not None:
            self.refuse(refusal)
        facts = self.allgather_object(agreement.facts())
        agreement.check(facts)
        self._topology = Topology.from_hosts(self.rank, [fact.host for fact in facts])
        if is_job:
            log.configure(self.rank, self.size, facts[self.rank].host)

    # ------------------------------------------------------------------------------ who am I

    @property
    def rank(self) -> int:
        """Index of this rank."""
        return self._gate.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._gate.size

    @property
    def backend(self) -> Backend:
        """The carrier of the data."""
        return self._backend

    @property
    def topology(self) -> Topology:
        """Ranks, nodes and devices of this communicator."""
        return self._topology

    @property
    def is_closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self._gate.closed

    # ---------------------------------------------------------------------------- reductions

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
        return self.iallreduce(array, op, out=out).wait(timeout)

    def iallreduce(
        self, array: ArrayLike, op: str = "sum", *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`allreduce`."""
        return self._start(operations.allreduce, array, op, out)

    def allreduce_many(
        self,
        arrays: Sequence[ArrayLike],
        op: str = "sum",
        *,
        bucket_bytes: int | None = None,
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
        timeout
            Seconds to wait.

        Notes
        -----
        One message for each dtype and each `bucket_bytes` of it.
        """
        work: Work[list[Array]] = self._start(fusion.allreduce_many, arrays, op, bucket_bytes)
        return work.wait(timeout)

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
        return self.ireduce(array, op, root, out=out).wait(timeout)

    def ireduce(
        self, array: ArrayLike, op: str = "sum", root: int = 0, *, out: Array | None = None
    ) -> Work[Array | None]:
        """Start :meth:`reduce`."""
        return self._start(operations.reduce, array, op, root, out)

    def reduce_scatter(
        self, array: ArrayLike, op: str = "sum", axis: int = 0, *, timeout: float | None = None
    ) -> Array:
        """Reduce over all ranks; every rank gets its piece of the result along `axis`.

        The pieces are as even as can be: the first ``rows % size`` ranks get one row more.
        """
        return self.ireduce_scatter(array, op, axis).wait(timeout)

    def ireduce_scatter(self, array: ArrayLike, op: str = "sum", axis: int = 0) -> Work[Array]:
        """Start :meth:`reduce_scatter`."""
        return self._start(operations.reduce_scatter, array, op, axis)

    # ------------------------------------------------------------------------------ movement

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
        return self.ibcast(array, root, out=out).wait(timeout)

    def ibcast(self, array: ArrayLike, root: int = 0, *, out: Array | None = None) -> Work[Array]:
        """Start :meth:`bcast`."""
        return self._start(operations.bcast, array, root, out)

    def allgather(self, array: ArrayLike, axis: int = 0, *, timeout: float | None = None) -> Array:
        """Concatenate all ranks' arrays in rank order along `axis`; every rank gets the result.

        Lengths along `axis` may differ between ranks; all else must agree. 0-d arrays
        are refused.
        """
        return self.iallgather(array, axis).wait(timeout)

    def iallgather(self, array: ArrayLike, axis: int = 0) -> Work[Array]:
        """Start :meth:`allgather`."""
        return self._start(operations.allgather, array, axis)

    def gather(
        self, array: ArrayLike, root: int = 0, axis: int = 0, *, timeout: float | None = None
    ) -> Array | None:
        """Concatenate as :meth:`allgather` does; `root` gets the result, the others None."""
        return self.igather(array, root, axis).wait(timeout)

    def igather(self, array: ArrayLike, root: int = 0, axis: int = 0) -> Work[Array | None]:
        """Start :meth:`gather`."""
        return self._start(operations.gather, array, root, axis)

    def scatter(
        self,
        array: ArrayLike | None,
        root: int = 0,
        axis: int = 0,
        *,
        timeout: float | None = None,
    ) -> Array:
        """Cut the root's array along `axis` and give every rank its piece.

        Ranks other than `root` pass None. Pieces are as in :meth:`reduce_scatter`.
        """
        return self.iscatter(array, root, axis).wait(timeout)

    def iscatter(self, array: ArrayLike | None, root: int = 0, axis: int = 0) -> Work[Array]:
        """Start :meth:`scatter`."""
        return self._start(operations.scatter, array, root, axis)

    def alltoall(
        self,
        array: ArrayLike,
        splits: Sequence[int] | None = None,
        axis: int = 0,
        *,
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
        timeout
            Seconds to wait.
        """
        return self.ialltoall(array, splits, axis).wait(timeout)

    def ialltoall(
        self, array: ArrayLike, splits: Sequence[int] | None = None, axis: int = 0
    ) -> Work[Array]:
        """Start :meth:`alltoall`."""
        return self._start(operations.alltoall, array, splits, axis)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until all ranks are here."""
        self.ibarrier().wait(timeout)

    def ibarrier(self) -> Work[None]:
        """Start :meth:`barrier`."""
        return self._start(operations.barrier)

    def bcast_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> Any:
        """Return the root's `value` on every rank; pickled, so for small Python objects."""
        return self._start(objects.bcast_object, value, root).wait(timeout)

    def allgather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Return the list of all ranks' values, by rank; pickled, for small Python objects."""
        work: Work[list[Any]] = self._start(objects.allgather_object, value)
        return work.wait(timeout)

    # -------------------------------------------------------------------------------- health

    def refuse(self, error: Exception) -> NoReturn:
        """Raise `error` here without leaving the peers waiting: they see `MismatchError`.

        For callers that find bad arguments before they call a collective. **Collective.**
        """
        self._engine.start(self._gate.refuse(error)).wait()
        raise error

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check arguments in this block: an error in it is told to the peers, as `refuse` does.

        **Local** unless there is an error.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the peers must not wait
            self.refuse(error)

    def fail(self, error: BaseException) -> None:
        """Tell the peers that this rank failed outside of a collective. **Local.**"""
        self._gate.fail(error)

    def close(self, *, timeout: float | None = None) -> None:
        """Free the communicator, once all ranks are here. Idempotent.

        A broken communicator is closed without waiting.
        """
        gate = self._gate
        if gate.closed:
            return
        try:
            if gate.broken is None:
                self.iclose().wait(timeout)
                self._backend.close()
                shutdown.forget(self)
        except CommunicationError as error:
            gate.break_off(error)  # the peers that go on must not wait for this rank
            raise
        finally:
            gate.closed = True

    def end(self, error: BaseException | None) -> None:
        """Close at the end of a ``with`` block; after an error without waiting for the peers.

        They may be elsewhere, so they are told about `error` instead.
        """
        if error is None:
            self.close()
        else:
            self.fail(error)
            self._gate.closed = True

    def iclose(self) -> Work[None]:
        """Start :meth:`close`: the wait for all ranks."""
        return self._start(operations.close)

    @property
    def gate(self) -> Gate:
        """State of this communicator's checks, for shutdown and diagnosis."""
        return self._gate

    def _start(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        try:
            steps = make(self._gate, *arguments)
        except Exception as error:  # noqa: BLE001 - the peers must hear of it, whatever it is
            steps = self._gate.refuse(error)
        return self._engine.start(steps, self.label)

    def __repr__(self) -> str:
        return f"Communicator(rank={self.rank}, size={self.size}, backend={self._backend.name!r})"

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)
