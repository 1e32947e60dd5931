"""Run replica functions with the GPU of their replica as CuPy's current one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from mpistrat.collectives.arrays import on_device
from mpistrat.strategy import context
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.replicas.gpu import WorkerReplica
from mpistrat.types import Nest

__all__ = ["GpuExtended"]


class GpuExtended(StrategyExtended):
    """Base of strategies whose replicas may be on GPUs."""

    context_class = WorkerReplica

    @functools.cached_property
    def _has_gpus(self) -> bool:
        return any(on_device.gpu_index(device) is not None for device in self.worker_devices)

    def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Nest:
        return super()._call(_on_its_gpu(fn) if self._has_gpus else fn, args, kwargs)


def _on_its_gpu(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replica function that runs with the GPU of its replica as the current one."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        replica = context.get_replica_context()
        if not isinstance(replica, WorkerReplica) or replica.gpu is None:
            return fn(*args, **kwargs)
        # The current GPU is a thread's own, so it is set in the replica's thread.
        with on_device.on_gpu(replica.gpu):
            return fn(*args, **kwargs)

    return call
