"""Resolve the cluster from a given `ClusterSpec` and task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.errors import ArgumentTypeError

__all__ = ["SimpleClusterResolver"]


class SimpleClusterResolver(ClusterResolver):
    """Return the cluster spec and task that it was given.

    Parameters
    ----------
    cluster_spec
        A `ClusterSpec` (or TensorFlow's).
    master
        What `master` answers when it is not asked for a task.
    task_type, task_id, environment, rpc_layer
        What the properties answer.
    num_accelerators
        What `num_accelerators` answers; None is an empty dict.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments are tf.distribute's
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        super().__init__(task_type, task_id, rpc_layer, environment)
        if not hasattr(cluster_spec, "as_dict"):
            raise ArgumentTypeError(
                f"cluster_spec is a {type(cluster_spec).__name__}; expected a ClusterSpec: wrap"
                " it, ClusterSpec(cluster_spec)"
            )
        self._cluster_spec = ClusterSpec(cluster_spec)
        self._master = master
        self._num_accelerators = num_accelerators

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster spec that was given."""
        return self._cluster_spec

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task, or the master that was given."""
        if task_type is not None and task_id is not None:
            return self._url(self._cluster_spec.task_address(task_type, task_id), rpc_layer)
        return self._url(self._master, rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: Any = None,
    ) -> dict[str, int]:
        """Return the numbers that were given, for any task."""
        return dict(self._num_accelerators or {})
