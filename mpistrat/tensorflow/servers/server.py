"""`Server` of a worker or a parameter server, and the evaluator's place beside them."""

from __future__ import annotations

from typing import Any

from mpistrat.checkpoint.evaluation_loop import no_evaluator
from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.servers.tasks import Tasks

__all__ = ["Server", "serve"]


def serve(job: str, index: int, host: str) -> tuple[Any, ...]:
    """Return the arguments of a server on a free port, which the system picks when it opens it.

    It need not know the others: the chief tells it their addresses. **Local.**
    """
    return {job: {index: f"{host}:0"}}, job, index, "grpc"


class Server(distribute.Server):  # type: ignore[misc]
    """A TensorFlow server on this rank: of a worker, or of a parameter server.

    On an evaluator's rank there is none, since it is no part of TensorFlow's cluster: there it
    says when the chief is done, by `join` or to a ``coordinator.SidecarEvaluator``.

    Parameters
    ----------
    server_or_cluster_def
        A `MPIClusterResolver` with parameter servers, or its ``cluster_spec()``; this rank's role
        is the resolver's. Anything else makes TensorFlow's own server of it.
    job_name, task_index
        This rank's role, which need not be said.
    protocol, config, start
        Of TensorFlow's own server; the one of a resolver speaks gRPC, and starts at once.
    comm, backend
        As of `MirroredStrategy`; `comm` is by default the resolver's.

    Raises
    ------
    UsageError, ClusterError
        The resolver is not right, or the role, on this or another rank; or the ranks are too few.

    Notes
    -----
    **Collective**: the chief makes a `ParameterServerStrategy` meanwhile. Anyone who
    reaches its port may use it, as any server of TensorFlow's (see there).

    References
    ----------
    tf.distribute.Server.
    """

    def __init__(  # noqa: PLR0913 - the arguments are tf.distribute's
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        # TensorFlow's constructor calls `start`, which reads it.
        self._tasks: Tasks | None = None
        resolver = _resolver(server_or_cluster_def)
        role = job_name, task_index
        if not hasattr(resolver, "cluster_spec"):
            super().__init__(server_or_cluster_def, *role, protocol, config, start)
            return
        tasks = Tasks(resolver, comm, backend, makes="Server", role=role)
        self._tasks = tasks
        if tasks.job == "evaluator":
            # An exchange of all ranks, also of those without an address.
            tasks.published("")
            return
        # The others wait in `published`, and hear of a server that cannot start.
        with tasks.communicator.checking():
            super().__init__(*serve(tasks.job, tasks.index, tasks.host), config)
        tasks.published(self.target.removeprefix("grpc://"))

    @property
    def target(self) -> str:
        """Where sessions find the server; an evaluator has none."""
        if self._is_evaluator:
            return ""
        found: str = super().target
        return found

    def start(self) -> None:
        """Start a server that was made with ``start=False``; an evaluator has none."""
        if not self._is_evaluator:
            super().start()

    @property
    def _is_evaluator(self) -> bool:
        return self._tasks is not None and self._tasks.job == "evaluator"

    def evaluator(self) -> Tasks:
        """Return what an evaluator has of the job; for ``coordinator.SidecarEvaluator``."""
        if self._tasks is None or not self._is_evaluator:
            who = "a server of TensorFlow's" if self._tasks is None else self._tasks.me
            raise no_evaluator(who)
        return self._tasks

    def join(self) -> None:
        """Serve until the chief has closed its strategy, or its program has ended well.

        Raises
        ------
        PeerLostError
            The chief, or another rank, failed or died; it is named.
        """
        if self._tasks is None:
            super().join()
        else:
            self._tasks.wait_for_chief()


def _resolver(given: Any) -> Any:
    """Return the resolver that a cluster spec of ours is from."""
    if not isinstance(given, ClusterSpec):
        return given
    counts = [given.num_tasks(job) if job in given.jobs else 0 for job in ("ps", "evaluator")]
    return MPIClusterResolver(None, *counts)
