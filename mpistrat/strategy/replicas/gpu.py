"""Replicas on GPUs, and what the replicas of one worker combine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mpistrat.collectives.arrays import on_device
from mpistrat.errors import UsageError
from mpistrat.strategy import context
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.nest import map_nest
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.replicas.replica_context import ReplicaContext
from mpistrat.strategy.values import DistributedValues
from mpistrat.strategy.variables.options import VariableAggregation, reduce_op_of
from mpistrat.types import Array, Nest

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy

__all__ = ["GpuExtended", "WorkerReplica", "check_rule", "combined", "one_of_several"]


class WorkerReplica(ReplicaContext):
    """A replica that may be on a GPU: what it reads and what collectives return is there then.

    On a worker of parameter servers, collectives go over the replicas of this worker.
    """

    @functools.cached_property
    def gpu(self) -> int | None:
        """Which GPU of this rank it runs on, or None."""
        return on_device.gpu_index(self.devices[0])

    def placed(self, value: Array) -> Any:
        """Return an array that was read, where this replica computes."""
        return value if self.gpu is None else on_device.placed(value)

    def all_reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Nest,
        options: CommunicationOptions | None = None,
    ) -> Nest:
        """Combine `value` over the replicas, where they compute."""
        return map_nest(self.placed, super().all_reduce(reduce_op, value, options))

    def all_gather(
        self, value: Nest, axis: int, options: CommunicationOptions | None = None
    ) -> Nest:
        """Concatenate `value` of the replicas, where they compute."""
        return map_nest(self.placed, super().all_gather(value, axis, options))


class GpuExtended(StrategyExtended):
    """The machinery of a strategy whose replicas may be on GPUs."""

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
        with on_device.on_gpu(replica.gpu):
            return fn(*args, **kwargs)

    return call


def one_of_several(strategy: Strategy) -> ReplicaContext | None:
    """Return the replica that runs this code, if its worker has others of this strategy."""
    mode = context.current()
    if mode is None or mode.replica is None or mode.strategy is not strategy:
        return None
    return mode.replica if strategy.extended.num_local_replicas > 1 else None


def check_rule(variable: Any, method: str) -> None:
    """Raise unless a variable says how the values of several replicas become one."""
    if variable.aggregation is VariableAggregation.NONE:
        count = variable.distribute_strategy.extended.num_local_replicas
        raise UsageError(
            f"{method} to variable {variable.name!r} in one of the {count} replicas of a worker"
            " needs a rule for their values; pass aggregation=VariableAggregation.MEAN (or SUM,"
            " ONLY_FIRST_REPLICA) to Variable, or assign outside of run"
        )


def combined(strategy: Strategy, aggregation: VariableAggregation, value: Any) -> Array:
    """Return the one value that those of this worker's replicas become."""
    if aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        first: Array = value.values[0] if isinstance(value, DistributedValues) else value
        return first
    combiner = strategy.extended.combiner
    op = reduce_op_of(aggregation)
    return combiner.reduce_one(op, combiner.of_each_replica(value))
