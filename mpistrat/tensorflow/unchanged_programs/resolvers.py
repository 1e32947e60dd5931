"""`TFConfigClusterResolver`: what the program takes for TF_CONFIG's cluster is MPI's."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.cluster.resolvers.tf_config_of_ranks import current
from mpistrat.cluster.topology import Topology
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.original_distribute import distribute

__all__ = ["TFConfigClusterResolver"]

_LOG = get_logger(__name__)


class TFConfigClusterResolver(MPIClusterResolver, distribute.cluster_resolver.ClusterResolver):  # type: ignore[misc]
    """Resolve the cluster from MPI, for a program that takes it from TF_CONFIG.

    Parameters
    ----------
    task_type, task_id
        What the program says this process is; MPI knows it.
    rpc_layer
        Put before addresses by `master`.
    environment
        What `environment` answers.

    Notes
    -----
    **Local.** Each answer replaces a TF_CONFIG of the program in the environment, too.

    References
    ----------
    tf.distribute.cluster_resolver.TFConfigClusterResolver.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._known_roles = roles = current()
        known = roles.resolver()
        super().__init__(known.comm, known.num_ps, topology=known.topology)
        self._task_type, self._task_id = known.task_type, known.task_id
        self.rpc_layer = rpc_layer
        self._environment = environment or ""
        if (task_type, task_id) not in {(None, None), (known.task_type, known.task_id)}:
            text = f"the program's task {task_type} {task_id} is replaced by what MPI says"
            warn_once(_LOG, "task replaced", text)

    def _spec_of(self, topology: Topology) -> ClusterSpec:
        return self._known_roles.resolver().cluster_spec()

    def cluster_spec(self) -> Any:
        """Return the tasks of all ranks as a ``tf.train.ClusterSpec``."""
        self._known_roles.replace_given()
        return tf.train.ClusterSpec(super().cluster_spec().as_dict())

    def _get_task_type(self) -> str | None:
        self._known_roles.replace_given()
        return super()._get_task_type()

    def _get_task_id(self) -> int | None:
        self._known_roles.replace_given()
        return super()._get_task_id()
