"""The base of all cluster resolvers: the tasks of a cluster, and which of them this is."""

from __future__ import annotations

import abc
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from mpistrat.cluster.cluster_spec import ClusterSpec

__all__ = ["ClusterResolver", "count_devices"]


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
