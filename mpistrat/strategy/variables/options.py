"""`VariableSynchronization` and `VariableAggregation`, with TensorFlow's names and values."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from mpistrat.errors import UsageError
from mpistrat.strategy.reduction.reduce_op import ReduceOp

if TYPE_CHECKING:
    from mpistrat.strategy.variables.base import Variable

__all__ = [
    "VariableAggregation",
    "VariableSynchronization",
    "check_mean",
    "check_options",
    "reduce_op_of",
]


class VariableSynchronization(enum.Enum):
    """When the copies are brought together.

    References
    ----------
    tf.VariableSynchronization.
    """

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """How the replicas' values become one.

    References
    ----------
    tf.VariableAggregation.
    """

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


def reduce_op_of(aggregation: VariableAggregation) -> ReduceOp:
    """Return the operation that combines the replicas' values: SUM for SUM, else MEAN."""
    return ReduceOp.SUM if aggregation is VariableAggregation.SUM else ReduceOp.MEAN


def check_mean(variable: Variable) -> None:
    """Raise if the replicas' values for a variable of integers are to be averaged."""
    if variable.aggregation is VariableAggregation.MEAN and variable.dtype.kind in "iu":
        raise UsageError(
            f"variable {variable.name!r} of dtype {variable.dtype} cannot be assigned to in a"
            " replica: the MEAN of integers is float64. Make it with aggregation=SUM or"
            " ONLY_FIRST_REPLICA, or of a floating-point dtype"
        )


def check_options(
    name: str,
    synchronization: VariableSynchronization,
    aggregation: VariableAggregation,
    trainable: bool | None,
) -> bool:
    """Raise on options that exclude each other; return whether the variable is trainable."""
    _check_member(name, "synchronization", synchronization, VariableSynchronization)
    _check_member(name, "aggregation", aggregation, VariableAggregation)
    is_on_read = synchronization is VariableSynchronization.ON_READ
    if is_on_read and trainable:
        raise UsageError(
            f"variable {name!r}: synchronization ON_READ is only for variables that are not"
            " trainable; got trainable=True"
        )
    return not is_on_read if trainable is None else bool(trainable)


def _check_member(name: str, what: str, value: object, kind: type[enum.Enum]) -> None:
    if not isinstance(value, kind):
        *others, last = (f"{kind.__name__}.{member.name}" for member in kind)
        raise UsageError(
            f"variable {name!r}: {what}={value!r}; expected a {kind.__name__}:"
            f" {', '.join(others)} or {last}"
        )
