"""Make a variable in parts, as a partitioner says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.colocation import colocated_with
from mpistrat.strategy.variables.sharded.variable import ShardedVariable
from mpistrat.tables.row_ranges import RowRanges
from mpistrat.types import Array

__all__ = ["partitioned"]

_PART = ("partition_shape", "partition_offset")


def partitioned(
    make_variables: Callable[[list[dict[str, Any]]], Sequence[Variable]],
    arguments: Mapping[str, Any],
    partitioner: Any = None,
) -> Variable | ShardedVariable:
    """Make a variable, or the parts of one.

    Parameters
    ----------
    make_variables
        Makes one variable for each dict of arguments of `Variable`; it says where they are.
        ``initial_value`` is an array, or a function without arguments that returns one.
    arguments
        Of `Variable`. The initial value may be a function that takes ``partition_shape`` and
        ``partition_offset``, too: if ``shape`` and ``dtype`` are given it is called for each part,
        so that the whole is never in one place.
    partitioner
        Called with ``shape`` and ``dtype`` of the whole; see `mpistrat.tables.partitioners`. None,
        and a block of ``colocate_vars_with``, make one variable.

    Returns
    -------
    Variable or ShardedVariable
        Several parts as one; a single one as it is.

    Raises
    ------
    UsageError
        The partitioner's result is none, or an initial value has another shape than it should.
    """
    arguments = dict(arguments)
    if partitioner is None or colocated_with() is not None:
        return make_variables([arguments])[0]
    initial = _Initial(arguments)
    count = part_count(partitioner, initial.shape, initial.dtype)
    if count == 1:
        return make_variables([{**arguments, "initial_value": initial.whole}])[0]
    ranges = RowRanges.divide(initial.shape[0], count)
    parts = [_part(arguments, initial, index, rows) for index, rows in enumerate(ranges)]
    variables = list(make_variables(parts))
    return ShardedVariable(variables, arguments.get("name") or "ShardedVariable")


def part_count(partitioner: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return into how many parts along axis 0 `partitioner` divides a variable, at most its rows.

    A variable without axes or without rows is one part, whatever the partitioner says.

    Raises
    ------
    UsageError
        It would divide another axis, or returns no such numbers.
    """
    if not callable(partitioner):
        raise ArgumentTypeError(
            f"variable_partitioner is a {type(partitioner).__name__}; expected a function of shape"
            " and dtype, such as mpistrat.experimental.partitioners.FixedShardsPartitioner(2)"
        )
    if not shape or shape[0] == 0:
        return 1
    result = partitioner(shape=shape, dtype=dtype)
    is_list = isinstance(result, (list, tuple)) and len(result) > 0
    if (
        not is_list
        or not all(isinstance(one, (int, np.integer)) for one in result)
        or result[0] < 1
        or any(one != 1 for one in result[1:])
    ):
        raise UsageError(
            f"variable_partitioner returned {result!r} for shape {shape}, dtype {dtype}; expected"
            " a list or tuple of the number of parts along axis 0, at least 1, and 1 for each"
            " other axis"
        )
    return min(int(result[0]), shape[0])


def _part(
    arguments: dict[str, Any], initial: _Initial, index: int, rows: tuple[int, int]
) -> dict[str, Any]:
    name = arguments.get("name")
    result = {**arguments, "initial_value": partial(initial.rows, *rows)}
    if name is not None:
        result["name"] = f"{name}/part_{index}"
    if "shape" in arguments:
        result["shape"] = (rows[1] - rows[0], *initial.shape[1:])
    return result


class _Initial:
    """The initial value of a variable: an array, or a function that makes rows of it."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        if "initial_value" not in arguments:
            raise ArgumentTypeError("Variable needs an initial_value: an array, or a function")
        self._value = arguments["initial_value"]
        self._name = arguments.get("name") or "Variable"
        shape, dtype = arguments.get("shape"), arguments.get("dtype")
        self._array: Array | None = None
        if shape is None or dtype is None or not _takes_parts(self._value):
            value = as_array(self._value() if callable(self._value) else self._value)
            self._array = value if dtype is None else value.astype(dtype)
            self.shape, self.dtype = self._array.shape, self._array.dtype
        else:
            self.shape, self.dtype = tuple(int(n) for n in shape), np.dtype(dtype)

    def whole(self) -> Array:
        """Return the value."""
        return self.rows(0, self.shape[0]) if self._array is None else self._array

    def rows(self, start: int, stop: int) -> Array:
        """Return some rows of the value."""
        if self._array is not None:
            return self._array[start:stop]
        shape = (stop - start, *self.shape[1:])
        offset = (start,) + (0,) * (len(shape) - 1)
        value = as_array(self._value(partition_shape=shape, partition_offset=offset))
        if value.shape == self.shape:  # the function ignores its arguments
            return value[start:stop]
        if value.shape != shape:
            raise UsageError(
                f"initial_value(partition_shape={shape}, partition_offset={offset}) of variable"
                f" {self._name!r} gave shape {value.shape}; expected that of the part, or"
                f" {self.shape}, the whole's"
            )
        return value


def _takes_parts(value: Any) -> bool:
    """Tell whether `value` is a function that can be asked for a part."""
    if not callable(value):
        return False
    try:
        parameters = inspect.signature(value).parameters
    except ValueError:  # a builtin that does not say
        return False
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return takes_any or all(name in parameters for name in _PART)
