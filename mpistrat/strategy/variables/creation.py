"""Make the variables of a strategy, on all ranks with rank 0's initial value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy import context
from mpistrat.strategy.context import Mode
from mpistrat.strategy.values import select_replica
from mpistrat.strategy.variables.base import Variable, check_initial
from mpistrat.strategy.variables.mirrored import SyncOnReadVariable
from mpistrat.strategy.variables.options import (
    VariableAggregation,
    VariableSynchronization,
    check_options,
)

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy
    from mpistrat.strategy.extended import StrategyExtended
    from mpistrat.types import Array

__all__ = ["copies", "create", "create_merged"]


def create_merged(strategy: Strategy, **kwargs: Any) -> Variable:
    """Make one variable for the calls that all replicas made; the first one's arguments count."""
    # Replicas may have named it by their own number, so names are not compared.
    return _create(strategy, select_replica(0, kwargs), ("initial_value", "name"))


def create(strategy: Strategy, **kwargs: Any) -> Variable:
    """Make a variable as `strategy` wants it. **Collective** if it has several ranks."""
    return _create(strategy, kwargs, ("initial_value",))


def _create(strategy: Strategy, kwargs: dict[str, Any], own: Sequence[str]) -> Variable:
    """Make a variable, of which `own` arguments need not be those of the other ranks."""
    if "initial_value" not in kwargs:
        raise ArgumentTypeError("Variable needs an initial_value: an array, or a function")
    extended = strategy.extended
    if not extended.mirrors_variables:  # of one process: there is nobody to agree with
        variable = extended.new_copy(0, **kwargs)
        variable.distribute_strategy = strategy
        return variable
    synchronization = kwargs.get("synchronization", VariableSynchronization.AUTO)
    if synchronization is VariableSynchronization.NONE:
        raise UsageError(
            f"variable {kwargs.get('name') or 'Variable'!r}: `NONE` variable synchronization mode"
            " is not supported by strategies with replicas; expected AUTO, ON_WRITE or ON_READ"
        )
    # An error here is raised on all ranks: one that raised alone would leave the others waiting
    # in the collectives below.
    with extended.communicator.checking():
        _check(kwargs, synchronization)
    # The ranks must agree on how it behaves, and which one it is; the value is rank 0's.
    options = {option: kwargs[option] for option in sorted(kwargs) if option not in own}
    told = "".join(f", {option}={_compared(option, value)}" for option, value in options.items())
    with extended.combiner.labelled_as(f"the first value of a Variable{told}"):
        value = _initial_value(strategy, kwargs)
        if synchronization is VariableSynchronization.ON_READ:
            return SyncOnReadVariable(strategy, copies(extended, value, kwargs))
        return extended.new_variable(value, kwargs)


def _compared(option: str, value: Any) -> Any:
    """Return what ranks compare of an argument: of names not what counts objects of one kind."""
    return re.sub(r"_\d+\b", "", value) if option == "name" and isinstance(value, str) else value


def copies(extended: StrategyExtended, value: Array, options: dict[str, Any]) -> list[Variable]:
    """Return a variable for each local replica, with rank 0's `value`. **Collective.**"""
    options["initial_value"] = extended.combiner.broadcast_first(value)
    return [_component(extended, index, **options) for index in range(extended.num_local_replicas)]


def _check(kwargs: dict[str, Any], synchronization: VariableSynchronization) -> None:
    """Check what `Variable` checks too, but before the other ranks are asked for anything."""
    name, trainable = kwargs.get("name") or "Variable", kwargs.get("trainable")
    aggregation = kwargs.get("aggregation", VariableAggregation.NONE)
    check_options(name, synchronization, aggregation, trainable)


def _initial_value(strategy: Strategy, kwargs: dict[str, Any]) -> Array:
    """Take this rank's value out of the arguments, in the dtype and shape that they ask for."""
    value, dtype = kwargs.pop("initial_value"), kwargs.get("dtype")
    with strategy.extended.communicator.checking(), context.enter(Mode(strategy, None)):
        array = as_array(value() if callable(value) else value)
        check_initial(kwargs.get("name"), array, kwargs.pop("shape", None))
        return array if dtype is None else array.astype(dtype, copy=False)


def _component(extended: StrategyExtended, index: int, **kwargs: Any) -> Variable:
    if index > 0:  # the copies' names are TensorFlow's
        kwargs["name"] = f"{kwargs.get('name') or 'Variable'}/replica_{index}"
    return extended.new_copy(index, **kwargs)
