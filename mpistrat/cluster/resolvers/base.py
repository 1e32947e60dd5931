"""Base of the cluster resolvers; resolvers for given tasks and for TF_CONFIG."""

from __future__ import annotations

import abc
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = ["ClusterResolver", "SimpleClusterResolver", "TFConfigClusterResolver", "count_devices"]


class ClusterResolver(abc.ABC):
    """Describe the cluster and this process's task in it.

    Derived classes provide `cluster_spec` and `master`, and set what they know of `task_type`,
    `task_id` and `rpc_layer`; or override their getters, ``_get_task_type()`` and so on.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = "",
    ) -> None:
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self._environment = environment

    @abc.abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Return the tasks of the cluster, as they are now."""

    @abc.abstractmethod
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task, or of the one to connect to; '' for this process."""

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: Any = None,
    ) -> dict[str, int]:
        """Return the number of accelerators of a worker by kind; kinds it lacks count as 0.

        The arguments are TensorFlow's; the answer is for this process, whatever they say.
        """
        from mpistrat.cluster.topology import Topology, host_name

        found = count_devices(Topology.from_hosts(0, [host_name()]).devices)
        return defaultdict(int, {kind: n for kind, n in found.items() if kind != "CPU"})

    @property
    def environment(self) -> str | None:
        """Return the environment of the cluster, such as 'google'; '' by default."""
        return self._environment

    @property
    def task_type(self) -> str | None:
        """Return the job that this process belongs to: 'chief', 'worker', 'ps', ...

        None if nothing says so, as of the two below.
        """
        return self._get_task_type()

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """Return the index of this process within its job."""
        return self._get_task_id()

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """Return the protocol to put before addresses, such as 'grpc'."""
        return self._get_rpc_layer()

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    # Apart from the properties, since who overrides one of these has to repeat its setter.

    def _get_task_type(self) -> str | None:
        return self._task_type

    def _get_task_id(self) -> int | None:
        return self._task_id

    def _get_rpc_layer(self) -> str | None:
        return self._rpc_layer

    def _or_own(self, task_type: str | None, task_id: int | None) -> tuple[Any, Any]:
        """Return a task as asked for, with this process's where it was left out."""
        return (
            self.task_type if task_type is None else task_type,
            self.task_id if task_id is None else task_id,
        )

    def _url(self, address: str, rpc_layer: str | None) -> str:
        layer = rpc_layer or self.rpc_layer
        return f"{layer}://{address}" if layer else address


def count_devices(devices: Iterable[str]) -> dict[str, int]:
    """Count device strings by kind: ``{"CPU": 2}`` for two that end with CPU:0 and CPU:1."""
    kinds = (device.rpartition(":")[0].rpartition(":")[2] for device in devices)
    return dict(Counter(kind.strip("/").upper() for kind in kinds))


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
