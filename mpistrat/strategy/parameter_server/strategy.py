"""`ParameterServerStrategy`: variables on servers, functions that a chief sends to workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.collectives import Communicator
from mpistrat.collectives.health.peers import short
from mpistrat.errors import ArgumentTypeError, ContextError, PeerLostError, UsageError
from mpistrat.ps.messages import End
from mpistrat.ps.transport.connect_ranks import connect_ranks
from mpistrat.ps.transport.encoding import encoded
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.ps.transport.one_process import Embedded
from mpistrat.ps.transport.open_job import open_job
from mpistrat.ps.transport.stream import Stream
from mpistrat.ps.transport.worker_devices import embedded_roster
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.parameter_server import program_end
from mpistrat.strategy.parameter_server.extended import ParameterServerExtended
from mpistrat.strategy.parameter_server.worker_context import refuse_collective, working_for

__all__ = ["ParameterServerStrategy"]

_chiefs: weakref.WeakValueDictionary[str, ParameterServerStrategy] = weakref.WeakValueDictionary()


class ParameterServerStrategy(Strategy):
    """Keep variables on ps; let workers read and change them, each at its own pace.

    The chief makes it, and sends out work with a ``mpistrat.coordinator.ClusterCoordinator``. The
    ranks whose ``resolver.task_type`` is ``'worker'`` or ``'ps'`` call
    ``mpistrat.Server(resolver).join()`` instead. In one process threads play these roles.

    Parameters
    ----------
    cluster_resolver
        Says the roles, such as ``MPIClusterResolver(num_ps=2)``.
    variable_partitioner
        Divides variables over the ps; one of ``mpistrat.experimental.partitioners``, or a function
        of that kind. A variable that it divides is a `ShardedVariable`.
    synchronous
        False: workers go on at their own pace. True: they work in rounds. In a round each worker
        runs one function; what these give to an optimizer is summed over the round, as Keras sums
        over replicas (divide by the global batch beforehand), and applied once on the ps, before a
        function of the next round begins.
    worker_devices
        In one process, where threads are the workers: what their replicas run on, a list for each
        worker, such as ``[["GPU:0", "GPU:1"], ["GPU:2"]]``. Default the GPUs that the process can
        see, dealt out to the workers, or one CPU each. On several ranks each worker's `Server` is
        given its own.
    comm, backend
        As in the other strategies; the communicator is for the start and the end of the job.

    Raises
    ------
    ClusterError
        The roles make no job, or this rank is not the chief.
    UsageError, BackendUnavailableError
        Of `worker_devices`: they do not fit the workers, or are not there.

    Notes
    -----
    **Collective** with the other ranks' `Server`. Every worker is by itself: in a function on a
    worker ``num_replicas_in_sync`` is the number of its own devices, by default 1, and nothing
    waits for other workers. The chief is one replica by itself, so there it is 1.
    If it is synchronous it is the number of all workers' devices, and still no worker waits for
    another: the chief begins rounds. So a worker that ends leaves none waiting; where MPI outlives
    it, its function runs on another with as many devices (or, if there is none, the job ends with
    an error), and counts once. Assignments to variables do not wait for the round.

    On a worker ``run`` calls its function once for each device, and collectives, datasets that are
    distributed there and an optimizer's sums cover those; an optimizer makes one step of them.
    Workers may have unequal numbers of devices: then divide by the global batch, not by a number
    of replicas. In a replica on a GPU that is the current one, variables are read as CuPy
    arrays there, and CuPy arrays are taken wherever NumPy's are: they are summed over the replicas
    of the worker on the first one's GPU, and sent from the host. docs/gpu.md says what has run on
    hardware.

    References
    ----------
    tf.distribute.ParameterServerStrategy.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver,
        variable_partitioner: Callable[..., Any] | None = None,
        *,
        synchronous: bool = False,
        worker_devices: Sequence[Sequence[str]] | None = None,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        refuse_collective("a ParameterServerStrategy", comm)
        check_resolver(cluster_resolver, "ParameterServerStrategy")
        if variable_partitioner is not None and not callable(variable_partitioner):
            raise ArgumentTypeError(
                f"variable_partitioner is a {type(variable_partitioner).__name__}; expected one of"
                " mpistrat.experimental.partitioners, or None"
            )
        if not isinstance(synchronous, bool):
            raise ArgumentTypeError(
                f"ParameterServerStrategy: synchronous={synchronous!r}; expected True or False"
            )
        self.synchronous = synchronous
        self._resolver: ClusterResolver | None = cluster_resolver
        self.job = open_job(comm, backend, program_end.has_open())
        self.embedded: Embedded | None = None
        if self.job.size == 1:
            self.embedded = Embedded(embedded_roster(cluster_resolver, worker_devices))
            endpoint = self.embedded.chief
        else:
            with self.job.checking():
                _check_no_devices(worker_devices)
            endpoint = connect_ranks(cluster_resolver, self.job, ["chief"], comm)
        self._extended = ParameterServerExtended(self, endpoint, variable_partitioner)
        self.coordinator: Any = None  # the only ClusterCoordinator of this strategy
        self._is_closed = False
        _chiefs[endpoint.uid] = self
        program_end.watch(self)

    @property
    def communicator(self) -> Communicator:
        """The job's, by which its ranks know of each other; on a worker one of itself alone.

        The other ranks serve until the job ends, and call no collectives meanwhile.
        """
        job: Communicator | None = getattr(self, "job", None)  # a worker's strategy has none
        return self._extended.communicator if job is None else job

    @classmethod
    def at_worker(
        cls, endpoint: Endpoint, resolver: ClusterResolver | None
    ) -> ParameterServerStrategy:
        """Return the strategy as a worker has it. **Local.**"""
        # Without __init__, which is collective: a worker has its connections already.
        strategy = cls.__new__(cls)
        strategy._resolver, strategy.embedded = resolver, None
        strategy.coordinator = None
        strategy.synchronous = False  # a chief that is says so later
        strategy._extended = ParameterServerExtended(strategy, endpoint)
        return strategy

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The resolver of the job's roles."""
        return self._resolver

    @property
    def extended(self) -> ParameterServerExtended:
        """Members that libraries use."""
        found: ParameterServerExtended = self._extended  # type: ignore[assignment]
        return found

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas whose gradients are summed: this member's, or of a round all workers'."""
        if self.synchronous:
            return self.extended.num_replicas_of_all
        return self.extended.num_replicas_in_sync

    def close(self) -> None:
        """End the job's servers: their ``join()`` returns. Idempotent; later calls are refused.

        Functions that were scheduled and not finished are given up; ``join()`` first.
        """
        if self._is_closed:
            return
        # Before anything can fail: a close() that has failed is not tried again.
        self._is_closed = True
        program_end.forget(self)
        try:
            # Workers before ps: a function that still runs there needs these.
            has_lost = self._end_workers()
        except BaseException as error:
            self.abandon(short(error))  # the ps would wait for the end for good
            self.job.end(error)
            raise
        has_lost = self._dismiss_evaluators(has_lost)
        self.extended.end(has_lost)
        if self.embedded is not None:
            self.embedded.join()
        if has_lost:  # closing is collective, and a rank is missing
            self.job.leave("a member of the job was lost before")
        else:
            self.job.close()

    def _end_workers(self) -> bool:
        found: bool = self._dismiss() if self.coordinator is None else self.coordinator.shut_down()
        return found

    def _dismiss(self) -> bool:
        """End workers that no coordinator has used; tell whether the job goes on without one."""
        endpoint = self.extended.client.endpoint
        were_told = [
            _send_end(endpoint.streams[worker], False) for worker in endpoint.roster.workers
        ]
        # Where ranks cannot be lost, closing the job says which one was.
        return not all(were_told) and mpi.outlives_ranks()

    def _dismiss_evaluators(self, has_lost: bool) -> bool:
        """Tell evaluators that the job is over; tell whether it has lost a member by then."""
        endpoint = self.extended.client.endpoint
        were_told = [
            _send_end(endpoint.streams[one], has_lost) for one in endpoint.roster.evaluators
        ]
        return has_lost or (not all(were_told) and mpi.outlives_ranks())

    def abandon(self, reason: str) -> None:
        """Leave a job that has failed, and tell the others why. **Local.**"""
        self._is_closed = True
        program_end.forget(self)
        if self.coordinator is not None:
            # First, since its thread uses the connections that fail() needs for itself.
            self.coordinator.stop()
        self.extended.leave()
        self.extended.client.endpoint.fail(reason)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon(short(error))
            self.job.end(error)

    def __reduce__(self) -> Any:
        return _arrive, (self.extended.client.endpoint.uid,)

    def __repr__(self) -> str:
        roster = self.extended.client.endpoint.roster
        return (
            f"<{type(self).__name__}: {len(roster.workers)} workers, {len(roster.ps)} ps, at"
            f" {self.extended.client.endpoint.me}>"
        )


def check_resolver(resolver: Any, who: str) -> None:
    """Raise unless `resolver` is one that knows roles."""
    if not isinstance(resolver, ClusterResolver):
        raise ArgumentTypeError(
            f"{who}: cluster_resolver is a {type(resolver).__name__}; expected a ClusterResolver,"
            " such as mpistrat.cluster_resolver.MPIClusterResolver(num_ps=1)"
        )


def _check_no_devices(worker_devices: Any) -> None:
    if worker_devices is not None:
        raise UsageError(
            f"worker_devices={worker_devices!r} in a job of several ranks; expected None: each"
            " worker names its own, Server(resolver, devices=['CPU:0', 'CPU:1']).join()"
        )


def _send_end(member: Stream, has_lost: bool) -> bool:
    """Tell a member that the job is over; return False if it had ended before."""
    try:
        member.send(encoded(End(has_lost)), config.timeout_s())
    except PeerLostError:
        return False
    return True


def _arrive(uid: str) -> ParameterServerStrategy:
    """Return the strategy as the member has it where a reference to it has arrived."""
    # The worker's first: in a job of one process its thread would find the chief's.
    found = working_for.get() or _chiefs.get(uid)
    if found is None or found.extended.client.endpoint.uid != uid:
        raise ContextError(
            "a ParameterServerStrategy, or a variable of one, was pickled and is read in another"
            " job; expected a function that its ClusterCoordinator schedules. To keep values, use"
            " mpistrat.train.Checkpoint"
        )
    return found
