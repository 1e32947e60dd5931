"""The workload of the case ``ps``: a table, and functions that workers run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any, Protocol, TypeAlias

import numpy as np

import mpistrat
from mpistrat.types import Array

__all__ = ["KINDS", "Calls", "Served", "Side", "TableSize", "draws"]

KINDS = ("rows", "dense", "schedule")
_DRAWS = 4  # of rows, in turn, so that none is in a cache still

Calls: TypeAlias = dict[str, dict[str, Callable[[int], object]]]
"""By what is done and by whom: each does a number of functions on workers, and waits for them."""


@dataclass(frozen=True)
class TableSize:
    """How large a table is, and how many random rows of it a function pulls or pushes."""

    table_rows: int
    columns: int
    rows: int
    num_workers: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.table_rows * self.columns * 4


class Side(Protocol):
    """Parameter servers that keep a table of float32, all elements of a row alike at first."""

    name: str

    def calls(self, kind: str) -> Calls:
        """Return the timed calls by name. A push subtracts ones."""
        ...

    def value(self) -> Array:
        """Return the table."""
        ...

    def pulled(self) -> tuple[Array, Array]:
        """Return some rows' indices, and the rows as a worker has pulled them."""
        ...


def draws(size: TableSize) -> Array:
    """Return indices of random rows, of shape [several, rows]."""
    return np.random.default_rng(0).integers(0, size.table_rows, (_DRAWS, size.rows))


class Served:
    """mpistrat's `ParameterServerStrategy`."""

    name = "mpistrat"

    def __init__(self, strategy: mpistrat.ParameterServerStrategy, size: TableSize) -> None:
        self._coordinator = mpistrat.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            self.table: Any = mpistrat.Variable(
                _first, shape=(size.table_rows, size.columns), dtype=np.float32
            )
        # Made before anything is timed, on the workers: neither random numbers nor values to push
        # travel with a function.
        datasets = self._coordinator.create_per_worker_dataset
        self._draws = iter(datasets(lambda: cycle(draws(size))))
        self._slices = iter(datasets(lambda: _slices(size)))

    def calls(self, kind: str) -> Calls:
        """See `Side`."""
        table, row = self.table, (self._draws,)
        if kind == "rows":
            pull = self._times(lambda rows: _pull(table, next(rows)), row)
            push = self._times(lambda slices: _push(table, next(slices)), (self._slices,))
            return {"pull": {self.name: pull}, "push": {self.name: push}}
        if kind == "dense":
            sides = {
                self.name: self._times(lambda: float(table.numpy()[0, 0])),
                f"{self.name}, view": self._times(lambda: _view(table)),
                "memcpy": self._times(lambda: _copy(table.shape)),
            }
            return {"pull": sides}
        return {"empty function": {self.name: self._times(lambda: None)}}

    def _times(self, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> Any:
        coordinator = self._coordinator

        def call(count: int) -> None:
            for _ in range(count):
                coordinator.schedule(function, args)
            coordinator.join()

        return call

    def value(self) -> Array:
        """See `Side`."""
        return np.array(self.table)

    def pulled(self) -> tuple[Array, Array]:
        """See `Side`."""
        table = self.table

        def pull(rows: Iterator[Array]) -> tuple[Array, Array]:
            some = next(rows)
            return some, mpistrat.nn.embedding_lookup(table, some)

        found: tuple[Array, Array] = self._coordinator.schedule(pull, (self._draws,)).fetch()
        return found


def _first(partition_shape: tuple[int, int], partition_offset: tuple[int, int]) -> Array:
    numbers = np.arange(partition_offset[0], partition_offset[0] + partition_shape[0]) % 1000
    return np.repeat(numbers.astype(np.float32)[:, None], partition_shape[1], axis=1)


def _slices(size: TableSize) -> Iterator[mpistrat.IndexedSlices]:
    values = np.ones((size.rows, size.columns), np.float32)
    return cycle([mpistrat.IndexedSlices(values, rows) for rows in draws(size)])


def _pull(table: Any, rows: Array) -> float:
    # One number travels back to the chief, and not the rows: the pull is what is timed.
    return float(mpistrat.nn.embedding_lookup(table, rows)[0, 0])


def _push(table: Any, slices: mpistrat.IndexedSlices) -> None:
    table.scatter_sub(slices)


def _view(table: Any) -> float:
    """Read views of all parts, without a copy."""
    total = 0.0
    for part in table.variables:
        with part.view() as array:
            total += float(array[0, 0])
    return total


@cache
def _private(shape: tuple[int, ...]) -> Array:
    return np.ones(shape, np.float32)


def _copy(shape: tuple[int, ...]) -> float:
    """Copy as many bytes as a pull to new memory within the worker."""
    # New memory in each call, as a pull has.
    return float(_private(shape).copy()[0, 0])
