"""`IndexedSlices`: a gradient of some rows of a variable, as an embedding's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.collectives.arrays.conversion import as_array, as_operand
from mpistrat.collectives.backends.gpu.kernels.rows import scatter_add
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.tables.row_order import in_order
from mpistrat.tables.rows import add_rows, check_result
from mpistrat.types import Array, ArrayLike

__all__ = ["IndexedSlices", "as_rows"]


def as_rows(indices: ArrayLike, what: str) -> Array:
    """Return indices of rows as an array of whole numbers; an empty list counts as such.

    Raises
    ------
    ArgumentTypeError
        They are no whole numbers; `what` begins the message.
    """
    rows = as_array(indices)
    if rows.size == 0 and rows.dtype.kind == "f":
        rows = rows.astype(np.int64)  # an empty list has no numbers that say their type
    if rows.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{what}: indices of dtype {rows.dtype}; expected whole numbers")
    return rows


@dataclass(init=False, eq=False)
class IndexedSlices:
    """Rows of an array that is zero elsewhere.

    Parameters
    ----------
    values
        Shape [n, ...]; on the host, or on a GPU, where they stay.
    indices
        Whole numbers of shape [n]: which rows along axis 0. One that comes twice is a sum. Those
        on a GPU are brought to the host.
    dense_shape
        That of the whole array, if it is known.

    References
    ----------
    tf.IndexedSlices.
    """

    values: Array
    indices: Array
    dense_shape: tuple[int, ...] | None

    def __init__(
        self,
        values: ArrayLike,
        indices: ArrayLike,
        dense_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.values, self.indices = as_operand(values), as_rows(indices, "IndexedSlices")
        self.dense_shape = None if dense_shape is None else tuple(dense_shape)
        if self.indices.ndim != 1 or self.values.shape[:1] != self.indices.shape:
            raise UsageError(
                f"IndexedSlices: values of shape {self.values.shape} and indices of shape"
                f" {self.indices.shape}; expected [n, ...] and [n]"
            )
        self._check_rows()

    def _check_rows(self) -> None:
        if self.dense_shape is None:
            return
        if self.dense_shape[1:] != self.values.shape[1:] or not self.dense_shape:
            raise UsageError(
                f"IndexedSlices: rows of shape {self.values.shape[1:]} do not fit into"
                f" dense_shape={self.dense_shape}"
            )
        self.check_indices(self.dense_shape[0])

    def check_indices(self, num_rows: int) -> None:
        """Raise `UsageError` unless all indices are rows of an array of so many."""
        wrong = self.indices[(self.indices < 0) | (self.indices >= num_rows)]
        if wrong.size:
            raise UsageError(
                f"IndexedSlices: {wrong.size} of {self.indices.size} indices are no rows of an"
                f" array of {num_rows}, the first is {wrong[0]}; expected 0 to {num_rows - 1}"
            )

    def summed(self) -> IndexedSlices:
        """Return the same with each row once, in ascending order, of the same dtype.

        Sums of half types are accumulated in float32 and rounded once.
        """
        indices, order = in_order(self.indices)
        # The places where another row begins; what is prepended makes the first place one.
        starts = np.flatnonzero(np.diff(indices, prepend=indices[:1] - 1))
        if starts.size == indices.size and (order[1:] > order[:-1]).all():
            return self
        places = np.empty(indices.size, np.int64)
        places[order] = np.repeat(np.arange(starts.size), np.diff(starts, append=indices.size))
        values = _summed(self.values, places, starts.size)
        return IndexedSlices(values, indices[starts], self.dense_shape)

    def on_host(self) -> IndexedSlices:
        """Return the same with the values on the host; itself if they are there."""
        if isinstance(self.values, np.ndarray):
            return self
        return IndexedSlices(as_array(self.values), self.indices, self.dense_shape)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        if self.dense_shape is None:
            raise UsageError("IndexedSlices without dense_shape cannot become an array")
        if copy is False:
            raise ValueError("IndexedSlices cannot become an array without a copy")
        once = self.on_host().summed()
        whole = np.zeros(self.dense_shape, self.values.dtype)
        whole[once.indices] = once.values
        return whole if dtype is None else whole.astype(dtype)  # type: ignore[call-overload]


def _summed(values: Array, places: Array, count: int) -> Array:
    """Return `count` rows, each the sum of the rows of `values` whose place it is, in order."""
    shape = (count, *values.shape[1:])
    if isinstance(values, np.ndarray):
        sums = np.zeros(shape, values.dtype)
        check_result(add_rows(sums, places, np.ascontiguousarray(values)), "summed")
        return sums
    with on_device.on_gpu(on_device.index_of(values)):
        there = np.zeros_like(values, shape=shape, order="C")
        scatter_add(there, places, on_device.contiguous(values))
    return there
