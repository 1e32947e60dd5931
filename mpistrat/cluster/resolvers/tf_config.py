"""Resolve the cluster from the environment variable TF_CONFIG."""

from __future__ import annotations

import json
import os
from typing import Any

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.errors import UsageError

__all__ = ["TFConfigClusterResolver"]


class TFConfigClusterResolver(ClusterResolver):
    """Resolve the cluster from the environment variable TF_CONFIG, read at each call.

    Parameters
    ----------
    task_type, task_id, rpc_layer
        Take the place of what TF_CONFIG says.
    environment
        What `environment` answers.

    Raises
    ------
    UsageError
        By every answer: TF_CONFIG is no JSON object. It is a ValueError.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        super().__init__(task_type, task_id, rpc_layer, environment)

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster of TF_CONFIG; an empty one if it is not set or names none."""
        return ClusterSpec(_tf_config().get("cluster", {}))

    def _get_task_type(self) -> str | None:
        if self._task_type is not None:
            return self._task_type
        kind = _task().get("type")
        return None if kind is None else str(kind)

    def _get_task_id(self) -> int | None:
        if self._task_id is not None:
            return int(self._task_id)
        index = _task().get("index")
        try:
            return None if index is None else int(index)
        except (TypeError, ValueError):
            raise _bad_config(f"task index {index!r}, expected a whole number") from None

    def _get_rpc_layer(self) -> str | None:
        if self._rpc_layer is not None:
            return self._rpc_layer
        layer = _tf_config().get("rpc_layer")
        return None if layer is None else str(layer)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task, by default this one; '' in a cluster of one or none."""
        spec = self.cluster_spec()
        if sum(spec.num_tasks(job) for job in spec.jobs) <= 1:
            return ""
        job, index = self._or_own(task_type, task_id)
        if job is None or index is None:
            raise _bad_config("a cluster but no task, expected this process's type and index")
        return self._url(spec.task_address(job, index), rpc_layer)


def _tf_config() -> dict[str, Any]:
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad_config(f"no JSON ({error})") from error
    if not isinstance(found, dict):
        raise _bad_config(f"a {type(found).__name__}, expected an object")
    return found


def _task() -> dict[str, Any]:
    task = _tf_config().get("task", {})
    if not isinstance(task, dict):
        raise _bad_config(f"a task that is a {type(task).__name__}, expected an object")
    return task


def _bad_config(what: str) -> UsageError:
    return UsageError(
        f"TF_CONFIG={os.environ.get('TF_CONFIG')!r} holds {what}; set it like"
        ' {"cluster": {"worker": ["host0:2222"]}, "task": {"type": "worker", "index": 0}}, or'
        " unset it"
    )
