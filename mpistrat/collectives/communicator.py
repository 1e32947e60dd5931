"""The communicator: the one way in to every collective."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from mpistrat import config
from mpistrat.cluster import process_end
from mpistrat.cluster.topology import Topology
from mpistrat.collectives import operations, shutdown
from mpistrat.collectives.backends.base import Backend, HasRelease, Steps
from mpistrat.collectives.backends.registry import open_backend
from mpistrat.collectives.checking import settings_check
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.fast_path.communicator_methods import FastPathMethods
from mpistrat.collectives.health import rank_names, stacks, timeline
from mpistrat.collectives.health.call_log import CallLog
from mpistrat.collectives.health.call_record import CallRecord, text_number
from mpistrat.collectives.health.communicator_state import Health
from mpistrat.collectives.health.stacks import Stacks
from mpistrat.collectives.methods.all_methods import CollectiveMethods
from mpistrat.collectives.progress.engine import Engine
from mpistrat.collectives.progress.work import Work
from mpistrat.errors import ArgumentTypeError, CommunicationError

if TYPE_CHECKING:
    from mpistrat.collectives.backends.gpu.backend import GpuBackend

__all__ = ["Communicator"]


class Communicator(FastPathMethods, CollectiveMethods):
    """Ordered, checked and timed collectives over the ranks of a job.

    All methods but the properties are **Collective**: every rank makes the same calls in the same
    order with matching arguments; otherwise every rank gets `MismatchError`. They take anything
    that :func:`~mpistrat.collectives.arrays.conversion.as_array` takes, on the host, of equal
    dtype on all ranks, and return new NumPy arrays of the caller's own, or `out`. (The memory of
    long ones is used again once nothing refers to it: they cannot be resized in place.) Where a
    method has a nonblocking form (``allreduce``, ``iallreduce``), that starts the call and returns
    a `Work`; the arrays must not be changed before it is done. Nonblocking calls finish in the
    order of their start.

    Calls of the ranks belong together by their order, and of two threads of a rank nobody knows
    which calls first: give each thread a communicator, or let them call in turn, alike on all
    ranks. Otherwise equal calls of different threads are combined, which nothing can notice.

    Over shared memory, and between nodes where MPI may be called by any thread, nonblocking calls
    go on while Python computes, one after the other, without the interpreter's lock. Calls of
    several steps do so up to the end of their first: ``igather`` and ``iallgather`` of unequal
    lengths, ``ialltoall`` with uneven splits, ``iscatter`` of another shape or dtype than before,
    lists of several dtypes. They, and what is behind them, go on when this rank next waits
    for a call or tests one.
    Every blocking method takes ``timeout``, in seconds (default ``MPISTRAT_TIMEOUT``).

    Parameters
    ----------
    comm
        An mpi4py intra-communicator, which is duplicated and used for nothing but that; a
        `Communicator`, for another one of its ranks (what that was made of must not be freed); a
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

    Cost of making one for P ranks between nodes: an MPI_Comm_dup, an MPI_Comm_split, an
    MPI_Allreduce of 32 bytes, MPI all-gathers of 32, 16 and 16 bytes a rank, and an all-gather of
    what the ranks say of themselves, in at most 4 log2 P messages and 512 P bytes. On a node of L
    ranks, five MPI all-gathers of 512 bytes a rank besides, two MPI_Bcast, and L - 1 open files a
    rank. Closing it is a gate. What calls cost: see `HierarchicalBackend`, `MpiBackend`.
    """

    def __init__(self, comm: Any = None, backend: str = "auto") -> None:
        # Of which another communicator of the same ranks can be made.
        self.origin: Any = comm.origin if isinstance(comm, Communicator) else comm
        self._backend, self._control, refusal = open_backend(self.origin, backend)
        names = rank_names.of_comm(self.origin, self._backend.rank, self._backend.size)
        self._gate = Gate(self._backend, self._control, names)
        self._engine = Engine(self._gate)
        self._label: str | None = None
        self._closing: Work[None] | None = None
        is_job = self._backend.capabilities().processes and self.size > 1
        # Before the first call: an error in it has to reach the peers, and to end the job.
        if is_job:
            shutdown.watch(self)
        if refusal is not None:
            self.refuse(refusal)
        with self.checking():
            mine = settings_check.facts(stacks.start() if is_job else "")
        facts = self.allgather_object(mine)
        settings_check.check(facts)
        self.health.uid = facts[0].uid
        # Only now is the setting known to be equal: were it not, every header would differ.
        self._gate.has_digests = config.checks()
        self._gate.bucket_bytes = config.fusion_bytes()
        if not config.checks():
            self.call_log.recorder.stop()
        self._allow_fast_calls()
        self._topology = Topology.from_hosts(self.rank, [fact.host for fact in facts])
        timeline.follow(self, facts)
        if is_job:  # after the timeline: the thread of stacks.py flushes one only if it is on
            self.health.stacks = Stacks(self._gate, facts)

    # ------------------------------------------------------------------------------ who am I

    @property
    def label(self) -> str | None:
        """What the calls that follow are made for; shown in mismatches, and compared."""
        return self._label

    @label.setter
    def label(self, label: str | None) -> None:
        self._label = label
        # The fast path looks fingerprints up by this number, which stands for the text.
        if self._backend.fast is not None:
            self._backend.fast.label = text_number(label)

    @contextmanager
    def labelled(self, label: str | None) -> Iterator[None]:
        """Let the calls that begin in this block have a :attr:`label`. **Local.**"""
        before, self.label = self._label, label
        try:
            yield
        finally:
            self.label = before

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
    def gpu_backend(self) -> GpuBackend | None:
        """The carrier of arrays on GPUs; None before the first call with some."""
        backend: GpuBackend | None = self._gate.device_backend
        return backend

    @property
    def topology(self) -> Topology:
        """Ranks, nodes and devices of this communicator."""
        return self._topology

    @property
    def is_closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self.health.closed

    def records(self) -> list[CallRecord]:
        """Return the last calls of this communicator, the oldest first. **Local.**

        At least the last ``MPISTRAT_RECORDS`` (default 256); none with ``MPISTRAT_CHECKS=0``. The
        last ten are shown on standard error when an error breaks the communicator.
        """
        return self.call_log.recorder.records()

    # -------------------------------------------------------------------------------- health

    def refuse(self, error: Exception) -> NoReturn:
        """Raise `error` here without leaving the peers waiting: they see `MismatchError`.

        For callers that find bad arguments before they call a collective. **Collective.** Where
        a GPU has not enough memory, all ranks raise `BackendUnavailableError`.
        """
        # The error may be that this very setting is wrong.
        timeout = config.valid_or(config.timeout_s, config.DEFAULT_TIMEOUT_S)
        self._engine.start(self._gate.refuse(error)).wait(timeout)
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

    def fail(self, error: BaseException, is_end: bool = False) -> None:
        """Tell the peers that this rank failed outside of a collective. **Local.**"""
        self.health.fail(error, is_end)

    def forget(self, reason: str) -> None:
        """Refuse all calls from now on, the pending ones too, and tell nobody. **Local.**"""
        self._engine.forget(reason)

    def leave(self, reason: str) -> None:
        """Give up this communicator in a job that goes on without a rank. **Local.**

        MPI then cannot be ended as usual: this process leaves without that when its program ends.
        """
        self.forget(reason)
        shutdown.forget(self)
        process_end.leave_at_end()

    def close(self, *, timeout: float | None = None) -> None:
        """Free the communicator, once all ranks are here. Idempotent.

        A broken communicator is closed without waiting.
        """
        health = self.health
        if health.closed:
            return
        try:
            if health.broken is None:
                self.iclose().wait(timeout)
                if self._gate.device_backend is not None:
                    self._gate.device_backend.close()
                self._backend.close()
                self._control.close()
                shutdown.forget(self)
        except CommunicationError as error:
            health.break_off(error)  # the peers that go on must not wait for this rank
            raise
        finally:
            health.closed = True
            self._release()

    def end(self, error: BaseException | None) -> None:
        """Close at the end of a ``with`` block; after an error without waiting for the peers.

        They may be elsewhere, so they are told about `error` instead.
        """
        if error is None:
            self.close()
        else:
            self.fail(error)
            self.health.closed = True
            self._release()

    def _release(self) -> None:
        """Give back what is left after an error, on GPUs and elsewhere, as far as is safe."""
        if self._gate.device_backend is not None:
            self._gate.device_backend.release()
        if isinstance(self._backend, HasRelease):
            self._backend.release()

    def iclose(self) -> Work[None]:
        """Start :meth:`close`, the wait for all ranks; the same call if it was started before.

        No other call may follow.
        """
        if self._closing is None:
            self._closing = self._start(operations.close)
            # Else ranks that have closed refuse a call in which the others wait.
            self.health.end_calls()
        return self._closing

    @property
    def health(self) -> Health:
        """Whether it is open, closed or broken, and what is known of the other ranks."""
        return self._gate.health

    @property
    def call_log(self) -> CallLog:
        """The numbers of its calls, their records, and the one under way in words."""
        return self._gate.call_log

    @property
    def gate(self) -> Gate:
        """The check that each call passes, for tests of it."""
        return self._gate

    def _start(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        return self._engine.start(self._steps(make, *arguments), self._label)

    def _call(self, timeout: float | None, make: Callable[..., Steps], *arguments: Any) -> Any:
        steps = self._steps(make, *arguments)
        return self._engine.start(steps, self._label, is_awaited=True).wait(timeout)

    def _steps(self, make: Callable[..., Steps], *arguments: Any) -> Steps:
        try:
            return make(self._gate, *arguments)
        except Exception as error:  # noqa: BLE001 - the peers must hear of it, whatever it is
            return self._gate.refuse(error)

    def _start_behind(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        return self._engine.start(self._steps(make, *arguments), self._label, is_behind=True)

    def __repr__(self) -> str:
        return f"Communicator(rank={self.rank}, size={self.size}, backend={self._backend.name!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "a Communicator can neither be pickled nor copied, nor can a strategy and its"
            " variables, which have one: it belongs to the process of this rank; pass what is"
            " needed of it, such as comm.rank or v.numpy(), save variables by a Checkpoint, or"
            " make one where it is used"
        )

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)
