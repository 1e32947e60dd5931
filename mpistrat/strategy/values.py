"""`DistributedValues`: one value for each replica, different ones or copies of one.

Lists of values are of this rank's replicas, in their order; other ranks hold their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mpistrat.collectives.arrays import on_device
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy import context
from mpistrat.strategy.nest import map_nest, map_nests
from mpistrat.types import Array, Nest

__all__ = [
    "DistributedValues",
    "Mirrored",
    "PerReplica",
    "check_count",
    "local_index",
    "regroup",
    "select_replica",
]


class DistributedValues:
    """One value for each of this rank's replicas.

    Parameters
    ----------
    values
        In replica order.

    References
    ----------
    tf.distribute.DistributedValues.
    """

    is_variable = False  # whether these are the copies of one

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = tuple(values)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values in replica order."""
        return self._values

    def __str__(self) -> str:
        return self._show(str)

    def __repr__(self) -> str:
        return self._show(repr)

    def _show(self, form: Any) -> str:
        rows = ",\n".join(f"  {i}: {form(value)}" for i, value in enumerate(self._values))
        return f"{type(self).__name__}:{{\n{rows}\n}}"


class PerReplica(DistributedValues):
    """Values that may differ between replicas; it does not act as an array or a number."""


class Delegate(NDArrayOperatorsMixin):
    """Base of objects that act as the array that ``_read()`` returns, to NumPy and operators."""

    def _read(self) -> Array:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        value = self._read()
        if type(value) is not np.ndarray:  # of another library, or on a GPU
            found = on_device.to_host(value)
            value = np.asarray(value) if found is None else found
        if dtype is not None and value.dtype != dtype:
            return value.astype(dtype)
        return value.copy() if copy else value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(one, Delegate) for one in kwargs.get("out", ())):
            raise ArgumentTypeError(
                f"{ufunc.__name__} cannot change a {type(self).__name__} in place; use assign_add,"
                " assign_sub or assign to change a variable, or v = v + x for a new array"
            )
        plain = [one._read() if isinstance(one, Delegate) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self._read()[key]

    def __len__(self) -> int:
        return len(self._read())

    def __float__(self) -> float:
        return float(self._read())

    def __int__(self) -> int:
        return int(self._read())

    def __index__(self) -> int:
        return self.__array__().__index__()

    def __bool__(self) -> bool:
        return bool(self._read())

    def __format__(self, spec: str) -> str:
        return format(self.__array__(), spec) if spec else str(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one replica's value."""
        return tuple(np.shape(self._read()))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of one replica's value."""
        value = self._read()
        return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions of one replica's value."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of one replica's value."""
        return int(np.prod(self.shape, dtype=np.int64))


class Mirrored(DistributedValues, Delegate):
    """The same value on every replica; acts as the value of the replica that reads it."""

    __hash__ = object.__hash__

    def _read(self) -> Array:
        value: Array = self._values[local_index()]
        return value

    @property
    def __cupy_get_ndarray__(self) -> Callable[[], Array]:
        """Hand the array to functions of CuPy; there is none where it is on the host."""
        if not on_device.is_elsewhere(self._read()):
            raise AttributeError("the value is on the host")
        return self._read


def local_index() -> int:
    """Return the index on this rank of the replica that runs or is updated; 0 across them."""
    mode = context.current()
    if mode is None:
        return 0
    return mode.updating or 0 if mode.replica is None else mode.replica.local_index


def select_replica(index: int, nest: Nest) -> Nest:
    """Return `nest` with each `DistributedValues` replaced by its value of one local replica.

    Distributed variables stay: they find their replica by themselves.
    """

    def select(leaf: Any) -> Any:
        if isinstance(leaf, DistributedValues) and not leaf.is_variable:
            return leaf.values[index]
        return leaf

    if type(nest) is tuple and not nest:  # no arguments, as in most calls
        return nest
    return map_nest(select, nest)


def check_count(count: int, nest: Nest) -> None:
    """Raise unless each `PerReplica` in `nest` has a value for each of `count` replicas."""

    def check(leaf: Any) -> None:
        if isinstance(leaf, PerReplica) and len(leaf.values) != count:
            raise UsageError(
                f"run with a PerReplica of {len(leaf.values)} values on {count} replicas; expected"
                " a value for each, such as of run or of a dataset distributed on this worker"
            )

    map_nest(check, nest)


def regroup(
    nests: Sequence[Nest],
    wrap: type[DistributedValues] = PerReplica,
    always_wrap: bool = False,
) -> Nest:
    """Merge one nest for each local replica into one nest of distributed values.

    A leaf that is the same object on all replicas stays bare, and so does the only leaf of a
    single replica, unless `always_wrap`. Components of a variable become that variable.
    """

    def merge(leaves: Sequence[Any]) -> Any:
        first = leaves[0]
        if not always_wrap:
            if all(leaf is first for leaf in leaves):
                return first
            container = getattr(first, "container", None)
            if container is not None and all(
                getattr(leaf, "container", None) is container for leaf in leaves
            ):
                return container
        return wrap(leaves)

    if len(nests) == 1 and not always_wrap:
        return nests[0]
    return map_nests(merge, nests)
