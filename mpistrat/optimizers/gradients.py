"""Check gradients against their variables, and sum them over the replicas."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from mpistrat.collectives.arrays.conversion import as_operand
from mpistrat.errors import ArgumentTypeError, ContextError, UsageError
from mpistrat.strategy import context
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.replicas import replica_context
from mpistrat.strategy.values import DistributedValues
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.sharded.variable import ShardedVariable

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy
    from mpistrat.strategy.replicas.replica_context import ReplicaContext

__all__ = [
    "Trained",
    "as_gradient",
    "check_same_strategy",
    "check_variable",
    "container",
    "in_words",
    "pair_of",
    "parts_of",
    "strategy_of",
    "summed",
]

Trained: TypeAlias = Variable | ShardedVariable


def pair_of(pair: Any) -> tuple[Any, Trained]:
    """Return what `apply_gradients` is given: a gradient, and its variable."""
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        return pair[0], pair[1]
    raise ArgumentTypeError(
        f"apply_gradients: got a {type(pair).__name__} in place of a pair; expected pairs of a"
        " gradient and its variable, as zip(gradients, variables) makes them"
    )


def container(variable: Any) -> Trained:
    """Return the distributed variable that `variable` is a copy of, or `variable`."""
    whole = getattr(variable, "container", None)
    found: Trained = variable if whole is None else whole
    check_variable(found)
    return found


def check_variable(variable: Any) -> None:
    """Raise unless `variable` is a variable of a floating-point dtype."""
    if not isinstance(variable, (Variable, ShardedVariable)):
        raise ArgumentTypeError(
            f"an optimizer updates variables; got a {type(variable).__name__}; expected pairs of a"
            " gradient and a Variable"
        )
    if variable.dtype.kind != "f" and variable.dtype.name != "bfloat16":
        raise UsageError(
            f"variable {variable.name!r} of dtype {variable.dtype} has no gradient; expected a"
            " floating type"
        )


def strategy_of(variables: Sequence[Trained]) -> Strategy:
    """Return the one strategy of all `variables`."""
    strategies = {id(v.distribute_strategy): v.distribute_strategy for v in variables}
    if len(strategies) > 1:
        names = [f"{v.name!r} ({v.distribute_strategy})" for v in variables]
        raise UsageError(f"variables of several strategies: {', '.join(names)}; expected one")
    found = next(iter(strategies.values()), None)
    strategy: Strategy = found if found is not None else context.get_strategy()
    return strategy


def check_same_strategy(replica: ReplicaContext, strategy: Strategy) -> None:
    """Raise unless the replica is one of the variables' `strategy`."""
    if strategy is not replica.strategy:
        raise ContextError(
            f"apply_gradients in a replica of {replica.strategy} to variables of {strategy};"
            " make the variables in the scope of the strategy that runs"
        )


def as_gradient(gradient: Any, variable: Trained) -> Any:
    """Return `gradient` as an array or `IndexedSlices` that fits `variable`, where it is."""
    if isinstance(gradient, DistributedValues):  # outside of `run`: one for each copy
        _check_count(gradient, variable)
        return DistributedValues([as_gradient(value, variable) for value in gradient.values])
    if isinstance(gradient, IndexedSlices):
        shape = (variable.shape[0] if variable.shape else 0, *gradient.values.shape[1:])
        if shape == variable.shape:
            gradient.check_indices(shape[0])
    else:
        gradient = as_operand(gradient)
        shape = gradient.shape
    if shape != variable.shape:
        raise UsageError(
            f"a gradient of shape {shape} for variable {variable.name!r} of shape"
            f" {variable.shape}; expected equal shapes"
        )
    return gradient


def _check_count(gradient: DistributedValues, variable: Trained) -> None:
    number, expected = len(gradient.values), len(getattr(variable, "values", gradient.values))
    if number != expected:
        raise UsageError(
            f"a gradient of {number} values for variable {variable.name!r} of {expected} copies on"
            " this rank; expected one for each, as a replica function of the same strategy returns"
        )


def parts_of(gradient: Any, variable: Trained) -> list[tuple[Any, Variable]]:
    """Return the parts of a variable, or the variable, each with its part of the gradient."""
    if not isinstance(variable, ShardedVariable):
        return [(gradient, variable)]
    if isinstance(gradient, DistributedValues):
        columns = zip(*(variable.split(value) for value in gradient.values), strict=True)
        gradients: list[Any] = [DistributedValues(column) for column in columns]
    else:
        gradients = variable.split(gradient)
    return list(zip(gradients, variable.variables, strict=True))


def in_words(variables: Sequence[Trained]) -> str:
    """Return whose gradients these are, and in which order; "" where variables have no numbers.

    All ranks have numbered their variables alike.
    """
    numbers = tuple(getattr(variable, "number", None) for variable in variables)
    if None in numbers:
        return ""
    # One object, as merge_call wants equal arguments.
    return sys.intern(f"gradients of variables {_ranges(numbers)}")


@lru_cache(maxsize=256)
def _ranges(numbers: tuple[int, ...]) -> str:
    """Return numbers with those that follow each other as a range: "0-4, 7, 6"."""
    starts = [i for i, n in enumerate(numbers) if i == 0 or n != numbers[i - 1] + 1]
    runs = [numbers[i:j] for i, j in zip(starts, [*starts[1:], None], strict=True)]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def summed(
    replica: ReplicaContext, gradients: list[Any], *, may_share: bool, what: str
) -> list[Any]:
    """Return the gradients' sums over all replicas; `IndexedSlices` stay rows.

    All replicas must tell `what` they are alike. Those that `may_share` are of all ranks: they are
    not to be written to, and soon over.

    In a synchronous round of parameter servers they are those of the worker: the ps sum further.
    """
    are_rows = [isinstance(gradient, IndexedSlices) for gradient in gradients]
    if True not in are_rows:
        totals: list[Any] = replica.merge_call(_all_reduce, (gradients, may_share, what))
        return totals
    rows = [gradient for gradient in gradients if isinstance(gradient, IndexedSlices)]
    whole = [g for g, is_rows in zip(gradients, are_rows, strict=True) if not is_rows]
    sums: Any = []
    if whole:
        sums = replica.merge_call(_all_reduce, (whole, may_share, what))
    gathered: Any = []
    if rows:
        parts = [[one.values, one.given_indices] for one in rows]
        # Rows of all replicas one after the other: those that come twice are added later, by
        # IndexedSlices.summed().
        gathered = replica.merge_call(_all_gather, (parts, what))
    all_rows = iter([IndexedSlices(values, indices) for values, indices in gathered])
    sums = iter(sums)
    return [next(all_rows) if is_rows else next(sums) for is_rows in are_rows]


def _all_reduce(strategy: Strategy, gradients: list[Any], may_share: bool, what: str) -> list[Any]:
    """Sum what the replicas handed over in a merge call, those of one worker at least."""
    combiner = strategy.extended.combiner
    with combiner.communicator.checking():
        replica_context.check_equal("variables, or orders of them", what)
    label = f"SUM over replicas, {what}" if what else None
    mine = combiner.lists_of_each_replica(gradients)
    totals = combiner.reduce_list(ReduceOp.SUM, mine, label, may_share)
    return combiner.copies_of_list(totals)


def _all_gather(strategy: Strategy, rows: list[list[Any]], what: str) -> list[list[Any]]:
    """Concatenate the values and indices of rows that the replicas handed over, likewise."""
    combiner = strategy.extended.combiner
    with combiner.communicator.checking():
        replica_context.check_equal("variables, or orders of them", what)
    with combiner.labelled_as(f"gather of {what or 'rows of gradients'}"):
        return [[replica_context.gathered(combiner, leaf, 0) for leaf in pair] for pair in rows]
