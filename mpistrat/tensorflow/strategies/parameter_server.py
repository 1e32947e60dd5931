"""`ParameterServerStrategy`: variables on the ps ranks, functions on the worker ranks."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.errors import ClosedError
from mpistrat.system.network.held_port import held_port
from mpistrat.tensorflow.coordinator import ClusterCoordinator
from mpistrat.tensorflow.keras import hooks as keras_hooks
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.own_strategies import WithServers
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.servers import chief_iterators
from mpistrat.tensorflow.servers.open_clusters import cluster_of
from mpistrat.tensorflow.servers.server import serve
from mpistrat.tensorflow.servers.tasks import Tasks
from mpistrat.tensorflow.strategies.older_members import OlderMembers
from mpistrat.tensorflow.strategies.only_replica import in_this_thread

__all__ = ["ParameterServerStrategy"]

_PORTS = 5  # tried for the chief; each is held until TensorFlow opens it

chief_iterators.refuse_iterators()


class ParameterServerStrategy(OlderMembers, WithServers, distribute.ParameterServerStrategy):  # type: ignore[misc]
    """TensorFlow's strategy of this name on MPI ranks: the chief makes it, others run ``Server``.

    One program serves for all roles, without addresses and ports::

        resolver = MPIClusterResolver(num_ps=1)
        if resolver.task_type == "chief":
            strategy = ParameterServerStrategy(resolver)
            ...
        else:
            Server(resolver).join()

    In one process without mpirun a worker and the parameter servers run in threads.

    Parameters
    ----------
    cluster_resolver
        A `MPIClusterResolver` with parameter servers.
    variable_partitioner
        Such as ``experimental.partitioners.MinSizePartitioner``; None for whole variables.
    comm, backend
        As of `MirroredStrategy`; `comm` is by default the resolver's. It carries addresses, and
        tells each rank of the others' end; the rest goes by TensorFlow's gRPC.

    Raises
    ------
    UsageError, ClusterError
        The resolver is not right, or the role, on this or another rank; or the ranks are too few.

    Notes
    -----
    **Collective**: the other ranks make their `Server` meanwhile. TensorFlow connects this process
    to the cluster: tensors and variables of before are lost. Another strategy over an equal
    resolver, while this one is open, is **Local**: both work on the same servers.

    Keras's ``fit``, ``evaluate`` and ``predict`` send their steps to the workers, without XLA.
    Logs of a batch are those of the steps that have ended by then, and logs of an epoch of all its
    steps. Workers read data of known length (or without end) by themselves; all else is read here
    and sent. A rank that dies ends the job: with its checkpoint it can be started again.

    TensorFlow's servers listen on all interfaces, also if all ranks are on one machine, and run
    what anyone who reaches them sends: use them only where the network is trusted.

    References
    ----------
    tf.distribute.experimental.ParameterServerStrategy.
    """

    def __init__(
        self,
        cluster_resolver: Any,
        variable_partitioner: Any = None,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        self._given_resolver = cluster_resolver
        self._cluster = cluster_of(cluster_resolver, comm, backend)
        self._is_closed = False
        if self._cluster.tf_resolver is None:
            # The servers wait for the chief in `join()`: they are told if it cannot connect.
            with self.communicator.checking():
                self._connect(variable_partitioner)
        else:
            super().__init__(self._cluster.tf_resolver, variable_partitioner)
        # A strategy has one coordinator only, which the constructor keeps in it.
        ClusterCoordinator(self)  # before TensorFlow makes one of its own for the strategy
        extended: Any = self.extended
        extended._call_for_each_replica = partial(in_this_thread, extended)
        # The strategy counts once it is made: one that fails must not keep the servers.
        self._cluster.join()

    def _serve_alone(self) -> dict[str, list[str]]:
        """Start the servers of all other tasks in this process; return their addresses."""
        counts = {"worker": 1, "ps": self.tasks.num_ps}
        self._cluster.servers = {
            job: [distribute.Server(*serve(job, i, self.tasks.host)) for i in range(count)]
            for job, count in counts.items()
        }
        return {
            job: [one.target.removeprefix("grpc://") for one in servers]
            for job, servers in self._cluster.servers.items()
        }

    def _connect(self, variable_partitioner: Any) -> None:
        addresses = self._serve_alone() if self.tasks.size == 1 else self._cluster.addresses
        # Another port in each turn: TensorFlow has an UnknownError for one at which it cannot
        # listen.
        for left in reversed(range(_PORTS)):
            with held_port() as port:
                jobs = {"chief": [f"{self.tasks.host}:{port}"], **addresses}
                resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
                    tf.train.ClusterSpec(jobs), task_type="chief", task_id=0, rpc_layer="grpc"
                )
                try:
                    super().__init__(resolver, variable_partitioner)
                except tf.errors.UnknownError as error:
                    if not left or "gRPC server" not in error.message:
                        raise
                else:
                    self._cluster.tf_resolver = resolver
                    return

    @property
    def tasks(self) -> Tasks:
        """The ranks and their roles."""
        return self._cluster.tasks

    @property
    def cluster_resolver(self) -> Any:
        """The resolver that was given."""
        return self._given_resolver

    @property
    def communicator(self) -> Communicator:
        """The communicator over which the ranks exchange addresses."""
        return self.tasks.communicator

    @property
    def coordinator(self) -> ClusterCoordinator:
        """The coordinator that sends functions to the workers."""
        found: ClusterCoordinator = self._cluster_coordinator
        return found

    @property
    def is_chief(self) -> bool:
        """True: only the chief has the strategy; it writes files."""
        return True

    def scope(self) -> Any:
        """See tf.distribute.Strategy.scope. **Local.**"""
        keras_hooks.install()
        return super().scope()

    @property
    def is_closed(self) -> bool:
        """Whether the strategy was closed, or its cluster."""
        return self._is_closed or self.communicator.is_closed

    def require_open(self) -> None:
        """Raise if the strategy was closed. **Local.**"""
        if self.is_closed:
            raise ClosedError("this ParameterServerStrategy was closed; make a new one")

    def close(self) -> None:
        """End the strategy, and with the last one the servers: ``join()`` returns. Idempotent.

        Scheduled functions that have not ended are cancelled: fetching their results raises
        `ClosedError`.

        Raises
        ------
        CommunicationTimeoutError
            A rank does not come to its ``join()``; it is named.
        """
        if self._left():
            self.communicator.close()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._left():
            self.communicator.end(error)

    def _left(self) -> bool:
        """Stop this strategy's functions; return whether the cluster is to end with it."""
        if self._is_closed:
            return False
        self._is_closed = True
        private_api.stop_coordinator(self._cluster_coordinator)
        return self._cluster.leave()
