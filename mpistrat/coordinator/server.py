"""`Server`: what all ranks but the chief run until its program ends."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mpistrat.checkpoint.evaluation_loop import no_evaluator
from mpistrat.cluster import mpi
from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.cluster.resolvers.simple import SimpleClusterResolver
from mpistrat.coordinator.evaluator import EvaluatorRole
from mpistrat.coordinator.worker import Worker
from mpistrat.errors import ClosedError, ContextError, PeerLostError, UsageError
from mpistrat.ps.server.shard_server import ShardServer
from mpistrat.ps.transport.connect_ranks import connect_ranks
from mpistrat.ps.transport.open_job import open_job
from mpistrat.strategy.parameter_server.worker_context import refuse_collective

__all__ = ["Server"]


class Server:
    """A worker, a ps or an evaluator of a `ParameterServerStrategy`.

    Parameters
    ----------
    server_or_cluster_def
        The resolver that says this rank's role; or a `ClusterSpec`, with the role beside it.
    job_name, task_index
        The role, if there is no resolver.
    protocol, config, start
        Kept for TensorFlow's signature.
    devices
        Of a worker: what its replicas run on, one each, such as ``["GPU:0", "GPU:1"]``; workers
        may have unequal numbers. Default the GPUs bound to this rank, or one CPU; see
        `MirroredStrategy`.
    comm, backend
        As of the chief's strategy.

    Notes
    -----
    **Collective** with the chief's strategy and all other servers.

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
        devices: Sequence[str] | None = None,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        del protocol, config, start
        refuse_collective("a Server", comm)
        self._resolver = _resolver(server_or_cluster_def, job_name, task_index)
        self._job = open_job(comm, backend)
        if self._job.size == 1:
            raise ContextError(
                f"Server of {self._resolver.task_type} {self._resolver.task_id} in a job of one"
                " rank, where nobody would send it work; start the ranks with mpirun, or make the"
                " ParameterServerStrategy, whose roles threads play in one process"
            )
        roles = ["worker", "ps", "evaluator"]
        self._endpoint = connect_ranks(self._resolver, self._job, roles, comm, devices)
        self._has_served = False

    @property
    def target(self) -> str:
        """A label of this rank; nothing can connect to it."""
        return f"mpistrat://{self._endpoint.me.task_type}/{self._endpoint.me.task_id}"

    def start(self) -> None:
        """Do nothing: it is up once it is made."""

    def join(self) -> None:
        """Serve until the chief's program is done. **Collective** with the chief's ``close()``.

        Raises
        ------
        PeerLostError
            The chief's program has ended with an error, or a ps is lost.
        ClosedError
            It has served, and the job is over.
        """
        roles: dict[str, Callable[[], bool]] = {
            "worker": lambda: Worker(self._endpoint, self._resolver).serve(),
            "ps": lambda: ShardServer(self._endpoint).serve(),
            "evaluator": lambda: EvaluatorRole(self._endpoint).serve(),
        }
        self.play(roles[self._endpoint.me.task_type])

    def evaluator(self) -> EvaluatorRole:
        """Return what an evaluator has of the job; for `SidecarEvaluator`."""
        if self._endpoint.me.task_type != "evaluator":
            raise no_evaluator(self._endpoint.me)
        return EvaluatorRole(self._endpoint)

    def play(self, serve: Callable[[], bool]) -> None:
        """Play this rank's role: `serve` returns when the job is over, and if it lost a member."""
        if self._has_served:
            raise ClosedError(
                f"join() of {self._endpoint.me}, whose job is over; make a Server for each"
                " ParameterServerStrategy that the chief makes"
            )
        self._has_served = True
        try:
            has_lost = serve()
        except PeerLostError as error:
            raise PeerLostError(
                f"{self._endpoint.me} cannot go on: {error}", error.rank
            ) from error
        except BaseException:
            # A job goes on without a worker or an evaluator, but not without a ps and its
            # variables.
            if self._endpoint.me.task_type != "ps" and mpi.outlives_ranks():
                _die_alone()
            raise
        finally:
            self._endpoint.close()  # those who wait for this member see at once that it has ended
        if has_lost:
            # close() waits for all ranks, of which one does not come.
            self._job.leave("a member of the job was lost before")
        else:
            self._job.close()


def _die_alone() -> NoReturn:
    """End a process so that the job goes on without it: an orderly end would end all."""
    traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(1)  # not reached: nothing outlives that signal


def _resolver(given: Any, job_name: str | None, task_index: int | None) -> ClusterResolver:
    if isinstance(given, ClusterResolver):
        if job_name is not None:
            given.task_type = job_name
        if task_index is not None:
            given.task_id = task_index
        return given
    if job_name is None:
        raise UsageError(
            "Server(cluster_spec) without job_name; expected Server(resolver), or the role too:"
            " Server(cluster_spec, job_name='worker', task_index=0)"
        )
    return SimpleClusterResolver(ClusterSpec(given), task_type=job_name, task_id=task_index or 0)
