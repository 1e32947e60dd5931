"""Read data sets of any kind: `mpistrat.data`'s, arrays, or other iterables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.input.array_spec import spec_of
from mpistrat.strategy.input.cutting import cut
from mpistrat.strategy.input.datasets import Dataset
from mpistrat.strategy.input.iterator import MISSING
from mpistrat.strategy.nest import map_nest
from mpistrat.types import Nest

__all__ = [
    "as_dataset",
    "as_element",
    "cut_raw",
    "dataset_length",
    "dataset_spec",
    "elements",
    "grouped",
    "open_epoch",
]


def as_dataset(data: Any) -> Any:
    """Return `data` if it is a data set, or the rows of arrays as one."""
    if isinstance(data, (np.ndarray, tuple, dict)) or (
        hasattr(data, "shape") and hasattr(data, "dtype")
    ):
        return Dataset.from_tensor_slices(data)
    if not isinstance(data, Iterable):
        raise ArgumentTypeError(
            f"a {type(data).__name__} is no data set; expected arrays, a mpistrat.data.Dataset, or"
            " an object that can be iterated over"
        )
    if isinstance(data, Iterator):
        raise ArgumentTypeError(
            f"a {type(data).__name__} can be walked only once, but each epoch walks the data set;"
            " pass a list, or mpistrat.data.Dataset.from_generator(function)"
        )
    return data


def open_epoch(dataset: Any, epoch: int) -> tuple[Iterator[Any], Callable[[Any], Nest]]:
    """Return an iterator of raw elements, which can be cut, and the function that loads one."""
    if isinstance(dataset, Dataset):
        return dataset.raw(epoch)
    # Copies, so that a replica function may change its batch in place.
    return map(as_element, dataset), lambda element: map_nest(_copied, element)


def _copied(leaf: Any) -> Any:
    found = on_device.to_host(leaf)
    if leaf is None:  # which goes into every piece of a batch
        return None
    return np.array(leaf) if found is None else found


def cut_raw(
    raw: Any,
    load: Callable[[Any], Nest],
    pieces: int,
    first: int = 0,
    count: int | None = None,
) -> list[Nest]:
    """Cut a raw element as ``cutting.cut`` does, and load the pieces."""
    if isinstance(raw, int):  # the number of one row, which may have an axis to cut itself
        return cut(load(raw), pieces, first, count)
    # Cut first: of a batch that is still row numbers only the wanted rows are fetched.
    return [load(piece) for piece in cut(raw, pieces, first, count)]


def elements(dataset: Any, epoch: int) -> Iterator[Nest]:
    """Return an iterator over whole elements."""
    raw, load = open_epoch(dataset, epoch)
    return map(load, raw)


def grouped(batches: Iterator[Nest], size: int) -> Iterator[list[Nest]]:
    """Yield lists of `size` batches, the last filled up with MISSING."""
    while group := list(itertools.islice(batches, size)):
        yield group + [MISSING] * (size - len(group))


def dataset_spec(dataset: Any) -> Nest:
    """Return the spec that the data set tells, or that of its first element."""
    known = getattr(dataset, "element_spec", None)
    if known is not None:
        return known
    for element in dataset:
        return spec_of(as_element(element), unknown_batch=False)
    raise UsageError("element_spec: the data set has no element to look at; give it one")


def dataset_length(dataset: Any) -> int:
    """Return the number of elements, or raise a TypeError that says it is not known."""
    try:
        return len(dataset)
    except TypeError as error:
        raise ArgumentTypeError(f"len: the data set's own length is not known: {error}") from error


def as_element(nest: Nest) -> Nest:
    """Convert an element of a foreign data set to a nest of arrays.

    Lists that hold numbers only, at any depth, become arrays. Other lists stay structure, as
    loaders that yield ``[x, y]`` mean them.
    """
    if not isinstance(nest, (list, tuple, dict)):
        return nest
    import optree

    parts: Any = nest
    return optree.tree_map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, list) else leaf,
        parts,
        is_leaf=_is_list_of_numbers,
        none_is_leaf=True,
    )


def _is_list_of_numbers(part: object) -> bool:
    return isinstance(part, list) and all(
        _is_list_of_numbers(item) if isinstance(item, list) else np.isscalar(item) for item in part
    )
