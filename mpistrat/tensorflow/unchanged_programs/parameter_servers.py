"""`ParameterServerStrategy` and `Server` for programs that give addresses: MPI says the roles."""

from __future__ import annotations

import math
import sys
from typing import Any, NoReturn

import tensorflow as tf

import mpistrat.tensorflow
from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.tf_config_of_ranks import JobRoles, current
from mpistrat.collectives import Communicator
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.unchanged_programs.roles import (
    has_servers,
    refuse_without_servers,
    roles_for_servers,
)

__all__ = ["ParameterServerStrategy", "Server"]


class ParameterServerStrategy(mpistrat.tensorflow.ParameterServerStrategy):
    """As `mpistrat.tensorflow.ParameterServerStrategy`, on the ranks that MPI gives the roles.

    A program that has all roles in one process makes it on every rank: rank 0 goes on as the
    chief. The others serve here until the chief's program ends, and then end with status 0.

    Parameters
    ----------
    cluster_resolver
        The program's own. Its addresses are not used; its number of parameter servers is, unless
        ``mpistrat run --ps`` was given.
    variable_partitioner
        See there.

    Notes
    -----
    **Collective.** On two ranks the first has all roles, and the other waits for its end.
    """

    def __init__(self, cluster_resolver: Any, variable_partitioner: Any = None) -> None:
        roles = roles_for_servers(cluster_resolver)
        if not roles.is_chief:
            _serve_and_leave(roles)
        alone = _idle_rank_met(roles) if roles.has_idle_rank else None
        super().__init__(roles.resolver(), variable_partitioner, comm=alone)


class Server(distribute.Server):  # type: ignore[misc]
    """A server that opens no port until `join`, where the rank takes the role that MPI gives it.

    A program that has all roles in one process makes servers and never joins one; the strategy
    then starts those that are needed. A cluster without parameter servers gets TensorFlow's own
    server.

    Parameters
    ----------
    server_or_cluster_def
        The program's cluster.
    job_name, task_index, protocol, config, start
        As of ``tf.distribute.Server``.

    References
    ----------
    tf.distribute.Server.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        spec = _cluster_spec(server_or_cluster_def)
        self._is_told = has_servers(spec)
        if not self._is_told:
            if spec.as_dict() == current().tf_config()["cluster"]:
                refuse_without_servers()
            super().__init__(server_or_cluster_def, job_name, task_index, protocol, config, start)
            return
        self._spec = spec
        task = str(job_name or "worker"), int(task_index or 0)
        self._label = f"{protocol or 'grpc'}://{spec.task_address(*task)}"

    @property
    def target(self) -> str:
        """Where the program expects the server."""
        return self._label if self._is_told else str(super().target)

    def start(self) -> None:
        """Do nothing before `join`, unless it is TensorFlow's own server."""
        if not self._is_told:
            super().start()

    def join(self) -> None:
        """Serve until the chief's program ends, then end this process with status 0.

        TensorFlow's never returns, so programs may go on with the chief's part after it.
        """
        if not self._is_told:
            super().join()
            return
        _serve_and_leave(roles_for_servers(self._spec))


def _serve_and_leave(roles: JobRoles) -> NoReturn:
    """Serve as what MPI says this rank is, until the chief is done. **Collective.**"""
    if roles.has_idle_rank and not roles.is_chief:
        _idle_rank_met(roles)
        _met[0].close(timeout=math.inf)
    else:
        mpistrat.tensorflow.Server(roles.resolver()).join()
    sys.exit(0)


def _idle_rank_met(roles: JobRoles) -> Any:
    """Return this rank's own mpi4py communicator; another one ends the idle rank's wait.

    **Collective** over both ranks at the first call.
    """
    if not _met:
        # First: unlike Split it has a deadline.
        _met.append(Communicator(roles.comm))
        _met.append(roles.comm.Split(roles.topology.rank))
    return _met[1]


_met: list[Any] = []  # both live until the program ends


def _cluster_spec(given: Any) -> Any:
    """Return the cluster of anything that ``tf.distribute.Server`` takes."""
    if isinstance(given, ClusterSpec):
        given = given.as_dict()
    if isinstance(given, tf.train.ServerDef):
        given = given.cluster
    return tf.train.ClusterSpec(given)
