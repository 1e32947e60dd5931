"""A small data set of arrays with the names of ``tf.data.Dataset``."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.input import dataset_plan
from mpistrat.strategy.input.dataset_plan import Plan
from mpistrat.strategy.input.dataset_rows import Rows, as_arrays
from mpistrat.strategy.input.dataset_streams import (
    INFINITE,
    UNKNOWN,
    batched,
    batched_length,
    repeated,
    repeated_length,
    shuffled,
    sliced,
    sliced_length,
)
from mpistrat.strategy.input.prefetch import AUTOTUNE, Prefetcher
from mpistrat.strategy.nest import map_nest
from mpistrat.types import Nest

__all__ = ["Dataset"]


class Dataset:
    """Elements (nests of arrays) that can be walked again and again.

    Made by its static methods. Elements are new arrays, which the receiver may change. Each
    ``iter()`` is an epoch: data sets made alike and walked equally often give the same elements
    in the same order on every rank, shuffled or not.

    Notes
    -----
    **Local**: nothing here communicates. A NumPy data set's `shuffle`, `batch`, `repeat`,
    `shard`, `take` and `skip` move row numbers only; the arrays are indexed once per batch.

    Examples
    --------
    >>> ds = Dataset.from_tensor_slices({"x": np.arange(6)}).batch(4)
    >>> [element["x"].tolist() for element in ds]
    [[0, 1, 2, 3], [4, 5]]
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._epochs = itertools.count()

    # ------------------------------------------------------------------------------- sources

    @staticmethod
    def from_tensor_slices(tensors: Nest) -> Dataset:
        """Make one element of each row of arrays.

        Parameters
        ----------
        tensors
            A nest of arrays with one length along axis 0. Tuples and dicts are structure, a list
            is one array (lists of arrays are stacked). The arrays are read when an element is
            made, so they must not change meanwhile.

        Raises
        ------
        UsageError
            No array, one without rows, or unequal lengths. It is a ValueError.
        """
        return Dataset(dataset_plan.of_rows(Rows(tensors)))

    @staticmethod
    def from_tensors(tensors: Nest) -> Dataset:
        """Make a data set of one element, the whole nest."""
        return Dataset.from_tensor_slices(map_nest(lambda leaf: leaf[None], as_arrays(tensors)))

    @staticmethod
    def range(*args: int, output_type: npt.DTypeLike = np.int64) -> Dataset:
        """Count as Python's ``range(...)`` does; the elements are 0-d int64."""
        return Dataset(dataset_plan.of_range(builtins.range(*args), np.dtype(output_type)))

    @staticmethod
    def from_generator(
        generator: Callable[[], Iterable[Nest]], output_signature: Nest | None = None
    ) -> Dataset:
        """Take the elements of what `generator` returns; it is called once an epoch.

        Parameters
        ----------
        generator
            A function without arguments that returns an iterable, the same on all ranks.
        output_signature
            A nest of `ArraySpec`: elements are converted to its dtypes, and their shapes
            checked. Without it `element_spec` has to make one element to look at.
        """
        if not callable(generator):
            raise ArgumentTypeError(
                f"from_generator: got a {type(generator).__name__}, which can be walked once at"
                " most; pass the function that makes it, such as `lambda: generate(...)`"
            )
        return Dataset(dataset_plan.of_generator(generator, output_signature))

    # ---------------------------------------------------------------------------- rearranging

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stack each `batch_size` elements along a new axis 0.

        Parameters
        ----------
        batch_size
            Elements in a batch; at least 1.
        drop_remainder
            True leaves out a last batch that would be smaller.
        """
        size = _whole("batch: batch_size", batch_size, least=1)
        plan = self._plan
        return Dataset(
            replace(
                plan,
                stream=batched(plan.stream, size, drop_remainder),
                length=batched_length(plan.length, size, drop_remainder),
                batch_shape=(size if drop_remainder else None, *plan.batch_shape),
            )
        )

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through the elements `count` times; None or -1: without end."""
        rounds = None if count is None or count == -1 else _whole("repeat: count", count, least=0)
        plan = self._plan
        return Dataset(
            replace(
                plan,
                stream=repeated(plan.stream, rounds),
                length=repeated_length(plan.length, rounds),
            )
        )

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep every `num_shards`-th element, from element `index` on."""
        shards = _whole("shard: num_shards", num_shards, least=1)
        first = _whole("shard: index", index, least=0)
        if first >= shards:
            raise UsageError(
                f"shard: index={index} with num_shards={num_shards}; expected 0 to {shards - 1}"
            )
        return self._slice(first, None, shards)

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements; -1: all."""
        return self._slice(0, None if count == -1 else _whole("take: count", count, least=0), 1)

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements; -1: all."""
        if count == -1:
            return self._slice(0, 0, 1)
        return self._slice(_whole("skip: count", count, least=0), None, 1)

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int | None = 0,
        reshuffle_each_iteration: bool | None = True,
    ) -> Dataset:
        """Permute the elements, in the same way on every rank.

        Parameters
        ----------
        buffer_size
            Elements to draw from at a time; None: all of them, a true permutation.
        seed
            The order depends on this and on the epoch only. None is 0, so that ranks agree.
        reshuffle_each_iteration
            False: every epoch in the same order.

        Raises
        ------
        UsageError
            `buffer_size` is not positive, or is None for an endless data set.
        """
        size = None
        if buffer_size is not None:
            size = _whole("shuffle: buffer_size", buffer_size, least=1)
        elif self._plan.length == INFINITE:
            raise UsageError("shuffle: an endless data set needs a buffer_size, e.g. 10000")
        reshuffle = reshuffle_each_iteration is not False
        word = (0 if seed is None else _whole("shuffle: seed", seed)) % 2**64
        return Dataset(
            replace(self._plan, stream=shuffled(self._plan.stream, size, word, reshuffle))
        )

    def _slice(self, start: int, stop: int | None, step: int) -> Dataset:
        plan = self._plan
        return Dataset(
            replace(
                plan,
                stream=sliced(plan.stream, start, stop, step),
                length=sliced_length(plan.length, start, stop, step),
            )
        )

    # ---------------------------------------------------------------------------- transforming

    def map(self, map_func: Callable[..., Nest], num_parallel_calls: int | None = None) -> Dataset:
        """Replace each element by ``map_func(element)``; a tuple is passed as arguments.

        `num_parallel_calls` is accepted for programs that set it; the calls are made in order.
        """
        return Dataset(dataset_plan.mapped(self._plan, map_func))

    def enumerate(self, start: int = 0) -> Dataset:
        """Pair each element with its number: ``(number, element)``."""
        return Dataset(dataset_plan.enumerated(self._plan, start))

    def prefetch(self, buffer_size: int) -> Dataset:
        """Prepare up to `buffer_size` elements ahead, in a thread; -1 for a default number.

        Only the last step of a chain prefetches. A distributed data set has a thread of its own.
        """
        size = AUTOTUNE if buffer_size == AUTOTUNE else _whole("prefetch", buffer_size, least=0)
        return Dataset(replace(self._plan, buffer_size=2 if size == AUTOTUNE else size))

    # --------------------------------------------------------------------------------- reading

    @property
    def rows(self) -> Rows | None:
        """The arrays that the data set is made of; None if it is made in another way."""
        return self._plan.rows

    @property
    def element_spec(self) -> Nest:
        """Return the nest of `ArraySpec` of an element; None where a dimension varies.

        Raises
        ------
        UsageError
            It takes an element to tell (after `map`, or from a generator), and there is none.
        """
        return self._plan.spec

    def raw(self, epoch: int) -> tuple[Iterator[Any], Callable[[Any], Nest]]:
        """Open an epoch without fetching any data, for those who need a part of each element.

        Returns
        -------
        tuple
            An iterator of raw elements, and the function that makes an element of a raw one.
            Raw elements can be cut along axis 0 before they are loaded.
        """
        return self._plan.stream((epoch,)), self._plan.load

    def __iter__(self) -> Iterator[Nest]:
        raw, load = self.raw(next(self._epochs))
        elements = builtins.map(load, raw)
        if not self._plan.buffer_size:
            return elements
        return Prefetcher(elements, self._plan.buffer_size)

    def __len__(self) -> int:
        length = self._plan.length
        if length < 0:
            state = "is endless" if length == INFINITE else "has a length that is not known"
            # TypeError, as len() of anything without a length: list() and others rely on it.
            raise ArgumentTypeError(f"len: the data set {state}; count while iterating instead")
        return length

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        length = {INFINITE: "endless", UNKNOWN: "unknown"}.get(self._plan.length)
        return f"<mpistrat.data.Dataset length={length or self._plan.length}>"


def _whole(what: str, value: object, least: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(f"{what} is {value!r}; expected a whole number")
    if least is not None and value < least:
        raise UsageError(f"{what} is {value}; expected at least {least}")
    return int(value)
