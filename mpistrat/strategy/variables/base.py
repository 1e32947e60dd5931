"""`Variable`: an array with a name that is assigned to; in a strategy's scope, distributed."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import UsageError
from mpistrat.strategy import context
from mpistrat.strategy.context import placed
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.values import Delegate
from mpistrat.strategy.variables.casting import fitting
from mpistrat.strategy.variables.options import (
    VariableAggregation,
    VariableSynchronization,
    check_options,
)
from mpistrat.strategy.variables.scatter import Scattered, check_slices, scatter
from mpistrat.tables.row_ranges import RowRanges, joined
from mpistrat.tables.rows import taken
from mpistrat.types import Array, ArrayLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CHANGES", "Variable", "check_initial", "variable_creator_scope"]

Creator = Callable[..., "Variable"]

CHANGES: dict[str, Callable[[Array, Array], Any]] = {
    "assign": np.copyto,
    "assign_add": lambda memory, delta: np.add(memory, delta, out=memory),
    "assign_sub": lambda memory, delta: np.subtract(memory, delta, out=memory),
}
"""What the methods of a variable do to its memory."""

_creators: ContextVar[tuple[Callable[..., Any], ...]] = ContextVar("mpistrat_creators", default=())


@contextmanager
def variable_creator_scope(creator: Callable[..., Variable]) -> Iterator[None]:
    """Let `creator` make the variables in this block.

    Parameters
    ----------
    creator
        Called as ``creator(next_creator, **kwargs)`` with the arguments of `Variable`; it
        returns a variable, usually that of ``next_creator(**kwargs)``.

    References
    ----------
    tf.variable_creator_scope.
    """
    token = _creators.set((*_creators.get(), creator))
    try:
        yield
    finally:
        _creators.reset(token)


def check_initial(name: str | None, value: Array, shape: Sequence[int] | None) -> None:
    """Raise unless an initial value has the shape that was asked for."""
    if shape is not None and value.shape != tuple(shape):
        raise UsageError(
            f"variable {name or 'Variable'!r}: an initial value of shape {value.shape} and"
            f" shape={tuple(shape)}; expected equal ones"
        )


class _Dispatch(ABCMeta):
    """Makes ``Variable(...)`` a distributed variable inside a strategy's scope."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Variable:
            return super().__call__(*args, **kwargs)
        names = ("initial_value", "trainable", "name", "dtype")
        if len(args) > len(names):
            raise UsageError(f"Variable takes at most {len(names)} positional arguments: {names}")
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        create: Callable[..., Any] = _create
        # The innermost scope comes last, so its creator is called first and has the others behind
        # it.
        for creator in _creators.get():
            create = _link(creator, create)
        return create(**arguments)

    def plain(cls, **kwargs: Any) -> Any:
        """Make a variable that is not distributed."""
        return super().__call__(**kwargs)


def _link(creator: Callable[..., Any], following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


def _create(**kwargs: Any) -> Any:
    return context.get_strategy().extended.create_variable(**kwargs)


class Variable(Scattered, Delegate, metaclass=_Dispatch):
    """An array that is assigned to.

    In the scope of a strategy with replicas, ``Variable(...)`` returns a copy on each replica
    that acts as one variable (`MirroredVariable` or `SyncOnReadVariable`, both `Variable`).

    Parameters
    ----------
    initial_value
        An array, or a function without arguments that returns one. In a scope, rank 0's counts;
        **Collective**.
    trainable
        Default True, but False with ON_READ.
    name
        Default ``"Variable"``; shown with ``":0"`` as in TensorFlow.
    dtype
        Default the initial value's.
    synchronization
        AUTO and ON_WRITE keep the copies equal at all times; ON_READ lets each replica write
        its own and combines them when they are read across replicas.
    aggregation
        How values assigned in a replica (ON_WRITE), or copies read (ON_READ), become one.
    shape
        That of the initial value, if it should be checked. With `dtype` it lets a strategy that
        divides variables call an initial value that takes ``partition_shape`` and
        ``partition_offset`` for each part.

    Notes
    -----
    Reading gives a read-only view of the live memory; ``numpy()`` and ``read_value()`` copy.

    References
    ----------
    tf.Variable.
    """

    is_variable = True
    distribute_strategy: Any = None  # the strategy in whose scope it was made
    container: Any = None  # the distributed variable that this is a component of
    kept: Any = None  # the ps that has it and its key there, if that ps writes it to checkpoints
    part_in: Any = None  # a weak reference to the ShardedVariable that this is a part of
    __hash__ = object.__hash__

    def __init__(  # noqa: PLR0913 - the arguments are TensorFlow's
        self,
        initial_value: ArrayLike | Callable[[], ArrayLike],
        trainable: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
        *,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        shape: Sequence[int] | None = None,
    ) -> None:
        value = initial_value() if callable(initial_value) else initial_value
        array = as_array(value)
        check_initial(name, array, shape)
        # In C order, since the kernels change rows in place.
        self._value = np.array(array, dtype=dtype or array.dtype, order="C")
        self._set_options(trainable, name, synchronization, aggregation)

    def _set_options(
        self,
        trainable: bool | None = None,
        name: str | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
    ) -> None:
        self._name = f"{name or 'Variable'}:0"
        self._trainable = check_options(self._name, synchronization, aggregation, trainable)
        self._synchronization, self._aggregation = synchronization, aggregation

    @property
    def memory_on_host(self) -> tuple[Array, ...] | None:
        """The memory of all copies on this rank; None if it is not this process's own."""
        return (self._value,) if type(self) is Variable else None

    @property
    def name(self) -> str:
        """Name, with ``:0``."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self._value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the value."""
        return self._value.dtype

    @property
    def sharded(self) -> Any:
        """The `ShardedVariable` that this is a part of, or None."""
        return None if self.part_in is None else self.part_in()

    def __getstate__(self) -> dict[str, Any]:
        # A copy of a part alone is a part of nothing; a copy of the whole takes its parts back.
        return {name: value for name, value in vars(self).items() if name != "part_in"}

    @property
    def trainable(self) -> bool:
        """Whether optimizers should change it."""
        return self._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        """When copies are brought together."""
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        """How values of replicas become one."""
        return self._aggregation

    def _read(self) -> Array:
        view = self._value.view()
        view.flags.writeable = False
        return view

    def value(self) -> Array:
        """Return a read-only view of the current value, which follows later assignments.

        In a replica on a GPU it is there: the memory itself, if that is there, else a copy.
        """
        return placed(self._read())

    @contextmanager
    def view(self) -> Iterator[Array]:
        """Lend the current value, read-only, without a copy where that can be.

        With parameter servers it stays as it is within the block; otherwise it follows
        assignments, as :meth:`value` does.
        """
        yield self._read()

    def read_value(self) -> Array:
        """Return a copy of the current value; in a replica on a GPU, there."""
        value = self._read()
        found = placed(value)
        return value.copy() if found is value else found

    def numpy(self) -> Array:
        """Return a copy of the current value, on the host."""
        value = self._read()
        found = on_device.to_host(value)
        return value.copy() if found is None else found

    def live(self) -> Array:
        """Return the memory itself, to be changed in place; of a copy, in ``extended.update``."""
        return self._value

    def assign(self, value: ArrayLike) -> Variable:
        """Set the value; `value` must have this variable's shape. Returns this variable."""
        return self._assign("assign", value)

    def assign_add(self, delta: ArrayLike) -> Variable:
        """Add `delta`, which must have this variable's shape. Returns this variable."""
        return self._assign("assign_add", delta)

    def assign_sub(self, delta: ArrayLike) -> Variable:
        """Subtract `delta`, which must have this variable's shape. Returns this variable."""
        return self._assign("assign_sub", delta)

    def _assign(self, method: str, value: ArrayLike) -> Variable:
        CHANGES[method](self._value, self._fitting(value, method))
        return self

    def _fitting(self, value: ArrayLike, what: str) -> Array:
        """Return `value` in this variable's dtype, if it has its shape."""
        array = self._taken(value, what)
        self._check_shape(array, what)
        return array

    def _check_shape(self, array: Array, what: str) -> None:
        if array.shape != self.shape:
            raise UsageError(
                f"{what} of shape {array.shape} to variable {self._name!r} of shape"
                f" {self.shape}; expected equal shapes"
            )

    def _taken(self, value: ArrayLike, what: str) -> Array:
        """Return `value` in this variable's dtype, if that loses no more than precision."""
        return as_array(fitting(value, self.dtype, self._what(what)))

    def _what(self, what: str) -> str:
        return f"{what} of {{}} to variable {self._name!r}"

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> Self:
        slices = check_slices(self, method, sparse_delta)
        scatter(self._value, method, slices.on_host())
        return self

    def _rows(self, rows: Array) -> Array:
        return taken(self._read(), rows)

    @classmethod
    def read_each(cls, variables: Sequence[Variable]) -> list[Array]:
        """Return the values of several variables of this class, the parts of a whole.

        This and the methods below are overridden where one message can ask for all of them.
        """
        return [variable._read() for variable in variables]

    @classmethod
    def read_joined(cls, variables: Sequence[Variable]) -> Array:
        """Return the values of the parts of a whole as one, in new memory."""
        return np.concatenate(cls.read_each(variables))

    @classmethod
    def rows_each(cls, variables: Sequence[Variable], rows: Sequence[Array]) -> list[Array]:
        """Return some rows of each; `rows` has those of each variable, of shape [n], checked."""
        return [one._rows(some) for one, some in zip(variables, rows, strict=True)]

    @classmethod
    def rows_of_parts(cls, variables: Sequence[Variable], ranges: RowRanges, rows: Array) -> Array:
        """Return rows of a whole by their indices, of shape [n], which are checked."""
        routes = ranges.route(rows)
        pieces = cls.rows_each(variables, [route.rows for route in routes])
        return joined(routes, pieces, (rows.size, *variables[0].shape[1:]))

    @classmethod
    def scatter_parts(
        cls,
        method: str,
        variables: Sequence[Variable],
        ranges: RowRanges,
        slices: IndexedSlices,
    ) -> None:
        """Scatter checked rows of a whole into its parts by `method`, such as ``scatter_add``."""
        routes = ranges.route(slices.indices)
        values = [IndexedSlices(route.take(slices.values), route.rows) for route in routes]
        cls.change_each(method, variables, values)

    @classmethod
    def change_each(
        cls, method: str, variables: Sequence[Variable], values: Sequence[Any]
    ) -> None:
        """Change each variable by its value; `method` is ``assign`` or alike."""
        for variable, value in zip(variables, values, strict=True):
            getattr(variable, method)(value)

    def __repr__(self) -> str:
        shown = repr(self._value.item()) if self._value.ndim == 0 else repr(self._value)
        return (
            f"<mpistrat.Variable '{self._name}' shape={self._value.shape}"
            f" dtype={self._value.dtype.name}, numpy={shown}>"
        )

    __str__ = __repr__
