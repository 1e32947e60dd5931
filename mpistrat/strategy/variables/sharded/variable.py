"""`ShardedVariable`: one variable whose rows are divided among several."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.context import placed
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.values import Delegate
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.casting import fitting
from mpistrat.strategy.variables.options import VariableAggregation, VariableSynchronization
from mpistrat.strategy.variables.scatter import Scattered, check_slices
from mpistrat.strategy.variables.sharded.indexing import is_basic, rows_within
from mpistrat.tables.row_ranges import RowRanges
from mpistrat.types import Array, ArrayLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ShardedVariable", "whole_of"]


class ShardedVariable(Scattered, Delegate):
    """Variables that act as one, of which each has some of the rows.

    Strategies with a ``variable_partitioner`` make it. It is an array to NumPy and to operators,
    and optimizers and checkpoints take it for one variable. Whatever reads some rows only, such as
    ``w[3:5]``, `sparse_read` and `embedding_lookup`, reads from the parts that have them only.

    Parameters
    ----------
    variables
        The parts, in the order of their rows: of one dtype, and of one shape apart from axis 0.
    name
        Of the whole.

    Raises
    ------
    ArgumentTypeError
        `variables` is no list of variables, or is empty.
    UsageError
        The parts do not fit together, or one is part of another whole.

    Notes
    -----
    An iteration gives the parts. There is no ``len()``, since that could be the number of parts or
    of rows; ask ``len(w.variables)`` or ``w.shape[0]``. All that is read is a copy. Every part is
    read and changed as one, so while workers change it a value may be before a change in one part
    and after it in another.

    References
    ----------
    tf.__internal__.distribute.ShardedVariable.

    Examples
    --------
    >>> w = ShardedVariable([Variable([1.0, 2.0]), Variable([3.0])], name="w")
    >>> w.numpy().tolist(), (w + 1)[2].item(), w[::-2].tolist()
    ([1.0, 2.0, 3.0], 4.0, [3.0, 1.0])
    """

    is_sharded_variable = True
    __hash__ = object.__hash__

    def __init__(self, variables: Sequence[Variable], name: str = "ShardedVariable") -> None:
        _check(variables)
        self._variables = list(variables)
        self._name = name
        self._ranges = RowRanges([one.shape[0] for one in self._variables])
        self._shape = (self._ranges.count, *self._first.shape[1:])
        self._dtype = self._first.dtype
        for variable in self._variables:
            # Weak: in a cycle the parts' memory would stay until the garbage collector runs.
            variable.part_in = weakref.ref(self)

    def __reduce__(self) -> Any:
        return _again, (self._variables, self._name)

    def __len__(self) -> int:
        raise ArgumentTypeError(
            f"len() of the variable {self._name!r} in {len(self._variables)} parts could be their"
            " number or that of rows; expected len(w.variables) or w.shape[0]"
        )

    @property
    def variables(self) -> list[Variable]:
        """The parts."""
        return list(self._variables)

    @property
    def ranges(self) -> RowRanges:
        """Which rows each part has."""
        return self._ranges

    @property
    def _first(self) -> Variable:
        return self._variables[0]

    @property
    def name(self) -> str:
        """Name of the whole; those of its parts are their own."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of all parts."""
        return self._dtype

    @property
    def trainable(self) -> bool:
        """Whether optimizers should change it."""
        return self._first.trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        """When copies are brought together."""
        return self._first.synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        """How values of replicas become one."""
        return self._first.aggregation

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope the parts were made."""
        return self._first.distribute_strategy

    # -------------------------------------------------------------------------------- reading

    def _read(self) -> Array:
        return type(self._first).read_joined(self._variables)

    def value(self) -> Array:
        """Return a copy of the current value; in a replica on a GPU, there."""
        return placed(self._read())

    def read_value(self) -> Array:
        """Return a copy of the current value; in a replica on a GPU, there."""
        return placed(self._read())

    def numpy(self) -> Array:
        """Return a copy of the current value, on the host."""
        value = self._read()
        found = on_device.to_host(value)
        return value if found is None else found

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._variables)

    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if all(is_basic(one) for one in rest):
            if isinstance(first, slice):
                return self._sliced(range(*first.indices(self._ranges.count)), rest)
            if is_basic(first) and first is not None and first is not Ellipsis:
                return self._row(operator.index(first), rest)
        return self._read()[key]

    def _sliced(self, rows: range, rest: tuple[Any, ...]) -> Array:
        found = [rows_within(rows, start, stop) for start, stop in self._ranges]
        pieces = [
            part[(some, *rest)]
            for part, some in zip(self._variables, found, strict=True)
            if some is not None
        ]
        if not pieces:
            return np.array(self._first[(slice(0, 0), *rest)])
        # With a negative step the rows of the last part come first.
        return np.concatenate(pieces if rows.step > 0 else pieces[::-1])

    def _row(self, row: int, rest: tuple[Any, ...]) -> Any:
        count = self._ranges.count
        if not -count <= row < count:
            raise IndexError(
                f"row {row} of variable {self._name!r}, which has {count} rows; expected {-count}"
                f" to {count - 1}"
            )
        row %= count
        part = self._ranges.find(row)
        return self._variables[part][(row - self._ranges.starts[part], *rest)].copy()

    def _rows(self, rows: Array) -> Array:
        return type(self._first).rows_of_parts(self._variables, self._ranges, rows)

    # ------------------------------------------------------------------------------- changing

    def assign(self, value: ArrayLike) -> Self:
        """Set the value; `value` must have this variable's shape. Returns this variable."""
        return self._assign("assign", value)

    def assign_add(self, delta: ArrayLike) -> Self:
        """Add `delta`, which must have this variable's shape. Returns this variable."""
        return self._assign("assign_add", delta)

    def assign_sub(self, delta: ArrayLike) -> Self:
        """Subtract `delta`, which must have this variable's shape. Returns this variable."""
        return self._assign("assign_sub", delta)

    def _assign(self, method: str, value: ArrayLike) -> Self:
        array = fitting(value, self.dtype, f"{method} of {{}} to variable {self._name!r}")
        if array.shape != self.shape:
            raise UsageError(
                f"{method} of shape {array.shape} to variable {self._name!r} of shape"
                f" {self.shape}; expected equal shapes"
            )
        self._change(method, self._ranges.split(array))
        return self

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> Self:
        slices = check_slices(self, method, sparse_delta)
        type(self._first).scatter_parts(method, self._variables, self._ranges, slices)
        return self

    def _change(self, method: str, values: Sequence[Any]) -> None:
        type(self._first).change_each(method, self._variables, values)

    def split(self, gradient: Array | IndexedSlices) -> list[Any]:
        """Return what of a gradient, or of another value of its shape, is each part's. **Local.**

        Parameters
        ----------
        gradient
            An array of this variable's shape, or `IndexedSlices` of its rows, checked.

        Returns
        -------
        list
            Views of an array; of slices, those with rows of the part, counted from its first one.
        """
        if not isinstance(gradient, IndexedSlices):
            return self._ranges.split(gradient)
        return [
            IndexedSlices(route.take(gradient.values), route.rows)
            for route in self._ranges.route(gradient.indices)
        ]

    def __repr__(self) -> str:
        return (
            f"<mpistrat.ShardedVariable {self._name!r} shape={self.shape} dtype={self.dtype.name},"
            f" {len(self._variables)} parts>"
        )

    __str__ = __repr__


def whole_of(variable: Variable | ShardedVariable) -> Variable | ShardedVariable:
    """Return what `variable` is a copy or a part of, or a copy of a part of; else itself."""
    found = variable
    for name in ("container", "sharded"):
        outer = getattr(found, name, None)
        found = found if outer is None else outer
    return found


def _again(variables: list[Variable], name: str) -> ShardedVariable:
    """Return the whole where its parts have arrived; they may be known there, and it too."""
    whole = variables[0].sharded
    return ShardedVariable(variables, name) if whole is None else whole


def _check(variables: Any) -> None:
    is_list = isinstance(variables, Sequence) and len(variables) > 0
    if not is_list or not all(isinstance(one, Variable) for one in variables):
        raise ArgumentTypeError(
            f"ShardedVariable({variables!r}); expected a list of variables, not empty"
        )
    names = [(one.name, one.shape, one.dtype.name) for one in variables]
    if any(not one.shape for one in variables):
        raise UsageError(f"ShardedVariable of {names}: a part has no rows; expected an axis 0")
    if len({(one.shape[1:], one.dtype) for one in variables}) > 1:
        raise UsageError(
            f"ShardedVariable of {names}; expected one dtype, and one shape but for axis 0"
        )
    if len({id(one) for one in variables}) < len(variables) or any(
        one.sharded is not None for one in variables
    ):
        raise UsageError(f"ShardedVariable of {names}: a part is already one; make new variables")
