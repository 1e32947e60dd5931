"""`WorkerReplica`: a replica that may be on a GPU."""

from __future__ import annotations

import functools
from typing import Any

from mpistrat.collectives.arrays import on_device
from mpistrat.strategy.nest import map_nest
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.replicas.replica_context import ReplicaContext
from mpistrat.types import Array, Nest

__all__ = ["WorkerReplica"]


class WorkerReplica(ReplicaContext):
    """A replica that may be on a GPU; values it reads and results of collectives are then there.

    On a worker of parameter servers, collectives go over the replicas of this worker.
    """

    @functools.cached_property
    def gpu(self) -> int | None:
        """Which GPU of this rank it runs on, or None."""
        return on_device.gpu_index(self.devices[0])

    def placed(self, value: Array) -> Any:
        """Return an array on this replica's GPU, if it has one."""
        return value if self.gpu is None else on_device.placed(value)

    def all_reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Nest,
        options: CommunicationOptions | None = None,
    ) -> Nest:
        """Combine `value` over the replicas; the result is on this replica's GPU."""
        return map_nest(self.placed, super().all_reduce(reduce_op, value, options))

    def all_gather(
        self, value: Nest, axis: int, options: CommunicationOptions | None = None
    ) -> Nest:
        """Concatenate `value` of the replicas; the result is on this replica's GPU."""
        return map_nest(self.placed, super().all_gather(value, axis, options))
