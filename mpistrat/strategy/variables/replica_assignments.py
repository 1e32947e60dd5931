"""Combine what several replicas of a worker assign to a variable on a parameter server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpistrat.errors import UsageError
from mpistrat.strategy import context
from mpistrat.strategy.values import DistributedValues
from mpistrat.strategy.variables.options import VariableAggregation, check_mean, reduce_op_of
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy
    from mpistrat.strategy.replicas.replica_context import ReplicaContext

__all__ = ["check_rule", "combined", "one_of_several"]


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
    check_mean(variable)


def combined(strategy: Strategy, aggregation: VariableAggregation, value: Any) -> Array:
    """Return the one value that those of this worker's replicas become."""
    if aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        first: Array = value.values[0] if isinstance(value, DistributedValues) else value
        return first
    combiner = strategy.extended.combiner
    op = reduce_op_of(aggregation)
    return combiner.reduce_one(op, combiner.of_each_replica(value))
