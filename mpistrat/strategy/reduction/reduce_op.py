"""`ReduceOp`: how values are combined across replicas."""

from __future__ import annotations

import enum
from typing import Any

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = ["ReduceOp"]


class ReduceOp(enum.Enum):
    """Sum or mean; methods also take the names as strings in any case.

    References
    ----------
    tf.distribute.ReduceOp.
    """

    SUM = "SUM"
    MEAN = "MEAN"

    @classmethod
    def of(cls, value: Any) -> ReduceOp:
        """Return the member that `value` names.

        Raises
        ------
        UsageError
            `value` is another string.
        ArgumentTypeError
            `value` is neither a `ReduceOp` nor a string.
        """
        if isinstance(value, cls):
            return value
        if type(value) is str and value in _SPELLINGS:  # the usual ones, without an enum lookup
            return _SPELLINGS[value]
        name = value if isinstance(value, str) else getattr(value, "value", None)
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"reduce_op={value!r} is a {type(value).__name__}; expected ReduceOp.SUM,"
                " ReduceOp.MEAN, 'SUM' or 'MEAN'"
            )
        try:
            return cls(name.upper())
        except ValueError:
            raise UsageError(
                f"{name.upper()!r} is not a valid ReduceOp; expected 'SUM' or 'MEAN'"
            ) from None


_SPELLINGS = {name: op for op in ReduceOp for name in (op.value, op.value.lower())}
