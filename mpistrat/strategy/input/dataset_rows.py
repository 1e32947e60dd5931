"""Arrays whose rows are the elements of a dataset, fetched by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.errors import UsageError
from mpistrat.strategy.nest import flatten, map_nest
from mpistrat.types import Array, Nest

__all__ = ["Rows", "as_arrays"]


def as_arrays(nest: Nest) -> Nest:
    """Return `nest` with arrays as its leaves, by the rules of tf.data.

    Tuples and dicts are structure; a list is one array (lists of arrays are stacked). Arrays of
    any library are kept as they are.

    Raises
    ------
    UsageError
        A list is ragged, or a leaf is no array of numbers, strings or times.
    """
    import optree

    return optree.tree_map(
        _as_array, nest, is_leaf=lambda part: isinstance(part, list), none_is_leaf=True
    )


def _as_array(leaf: object) -> Any:
    on_host = on_device.to_host(leaf)  # of arrays on GPUs: batches are copied to GPUs one by one
    if on_host is not None:
        return on_host
    if hasattr(leaf, "shape") and hasattr(leaf, "__getitem__"):
        array: Any = leaf
    else:
        array = _convert(leaf)
    if getattr(array, "dtype", None) == np.dtype(object):
        raise UsageError(
            f"a {type(leaf).__name__} in a dataset would be an array of Python objects; expected"
            " numbers: convert it, or leave it out of the nest"
        )
    return array


def _convert(leaf: object) -> Array:
    try:
        return np.asarray(leaf)
    except ValueError as error:
        raise UsageError(
            f"a list in a dataset stands for one array, but its items do not stack ({error});"
            " put arrays of different shapes in a tuple, or yield them from a generator"
        ) from error


class Rows:
    """Fetch rows of a nest of arrays, all leaves at once.

    Parameters
    ----------
    nest
        Arrays (or lists, tuples, dicts of them) of one length along axis 0. They are not copied.

    Raises
    ------
    UsageError
        There is no array, one is 0-d, or the lengths differ.
    """

    def __init__(self, nest: Nest) -> None:
        self.nest = as_arrays(nest)
        self.length = _common_length(self.nest)

    def __call__(self, index: int | Array) -> Nest:
        """Return the rows at `index`, with the shape of `index` in front, as new arrays."""
        selector = _selector(index)
        return map_nest(lambda leaf: _fetch(leaf, selector), self.nest)


def _common_length(nest: Nest) -> int:
    shapes = [tuple(leaf.shape) for leaf in flatten(nest)[0]]
    if not shapes or any(not shape for shape in shapes):
        raise UsageError(
            f"slices of arrays of shapes {shapes}: expected at least one array, each with rows"
            " along axis 0; use from_tensors for a single element"
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise UsageError(
            f"slices of arrays of shapes {shapes}: the lengths along axis 0 differ; cut them to"
            " one length"
        )
    return int(shapes[0][0])


def _selector(index: int | Array) -> int | slice | Array:
    """Turn indices that count up by one into a slice: copying one block is faster."""
    if isinstance(index, int) or index.ndim != 1 or not index.size:
        return index
    first, count = int(index[0]), index.size
    # The ends first: those of a shuffled batch seldom fit, and the rest is not looked at then.
    if index[-1] - first == count - 1 and (np.diff(index) == 1).all():
        return slice(first, first + count)
    return index


def _fetch(leaf: Any, selector: int | slice | Array) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf[selector]
    if isinstance(selector, np.ndarray):
        return leaf.take(selector, axis=0)
    # The receiver owns what it gets: writing into a batch must not change the data set.
    return leaf[selector].copy()
