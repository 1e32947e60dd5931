"""`IndexedSlices`: a gradient of some rows of a variable, as an embedding's."""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.arrays.conversion import as_array, as_operand
from mpistrat.collectives.backends.gpu.kernels.row_sums import can_sum, row_sums
from mpistrat.collectives.backends.gpu.kernels.rows import scatter_add
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.tables.row_order import in_order
from mpistrat.tables.rows import add_rows, check_result
from mpistrat.types import Array, ArrayLike

__all__ = ["IndexedSlices", "as_rows", "rows_outside"]


def as_rows(indices: ArrayLike, what: str) -> Array:
    """Return indices of rows as an array of whole numbers; an empty list counts as such.

    Those on a GPU stay there.

    Raises
    ------
    ArgumentTypeError
        They are no whole numbers; `what` begins the message.
    """
    rows = as_operand(indices)
    if rows.size == 0 and rows.dtype.kind == "f":
        rows = rows.astype(np.int64)  # an empty list has no numbers that say their type
    if rows.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{what}: indices of dtype {rows.dtype}; expected whole numbers")
    return rows


def rows_outside(indices: Array, num_rows: int) -> Array:
    """Return those indices, on the host, that are no rows of an array of so many.

    For indices on a GPU it waits until what was queued there before is done.
    """
    if isinstance(indices, np.ndarray):
        outside: Array = indices[(indices < 0) | (indices >= num_rows)]
        return outside
    with gpu_devices.on_gpu(on_device.index_of(indices)):
        are_rows = not bool(((indices < 0) | (indices >= num_rows)).any())
    return np.empty(0, indices.dtype) if are_rows else rows_outside(as_array(indices), num_rows)


class IndexedSlices:
    """Rows of an array that is zero elsewhere.

    Parameters
    ----------
    values
        Shape [n, ...]; on the host, or on a GPU, where they stay.
    indices
        Whole numbers of shape [n]: which rows along axis 0. One that comes twice is a sum. Those
        on a GPU stay there if the values are on one, too.
    dense_shape
        That of the whole array, if it is known.

    Attributes
    ----------
    given_indices
        Where they are: an array of CuPy if they were given on a GPU.

    Notes
    -----
    Indices and values on one GPU are summed, added to variables there and applied by an optimizer
    there without a copy on the host. Parts of variables, parameter servers and other scatters
    than sums use `indices`.

    References
    ----------
    tf.IndexedSlices.
    """

    values: Array
    given_indices: Array
    dense_shape: tuple[int, ...] | None

    def __init__(
        self,
        values: ArrayLike,
        indices: ArrayLike,
        dense_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.values, self.given_indices = as_operand(values), as_rows(indices, "IndexedSlices")
        if isinstance(self.values, np.ndarray):
            self.given_indices = as_array(self.given_indices)
        self.dense_shape = None if dense_shape is None else tuple(dense_shape)
        self._indices: Array | None = None
        if self.given_indices.ndim != 1 or self.values.shape[:1] != self.given_indices.shape:
            raise UsageError(
                f"IndexedSlices: values of shape {self.values.shape} and indices of shape"
                f" {self.given_indices.shape}; expected [n, ...] and [n]"
            )
        self._check_rows()

    @property
    def indices(self) -> Array:
        """The indices on the host; those that are on a GPU are brought here, once."""
        if self._indices is None:
            self._indices = as_array(self.given_indices)
        return self._indices

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(values={self.values!r}, indices={self.given_indices!r},"
            f" dense_shape={self.dense_shape!r})"
        )

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
        wrong = rows_outside(self.given_indices, num_rows)
        if wrong.size:
            raise UsageError(
                f"IndexedSlices: {wrong.size} of {self.indices.size} indices are no rows of an"
                f" array of {num_rows}, the first is {wrong[0]}; expected 0 to {num_rows - 1}"
            )

    def with_values(self, values: Array, dense_shape: tuple[int, ...] | None) -> IndexedSlices:
        """Return other values of the same rows, all of which are known to fit `dense_shape`."""
        return _unchecked(values, self.given_indices, dense_shape)

    def summed(self) -> IndexedSlices:
        """Return the same with each row once, in ascending order, of the same dtype.

        Sums of half types are accumulated in float32 and rounded once.
        """
        if isinstance(self.given_indices, np.ndarray):
            return self._summed_by_host_indices()
        return self._summed_on_gpu()

    def _summed_by_host_indices(self) -> IndexedSlices:
        indices, order = in_order(self.indices)
        # The places where another row begins; what is prepended makes the first place one.
        starts = np.flatnonzero(np.diff(indices, prepend=indices[:1] - 1))
        if starts.size == indices.size and (order[1:] > order[:-1]).all():
            return self
        places = np.empty(indices.size, np.int64)
        places[order] = np.repeat(np.arange(starts.size), np.diff(starts, append=indices.size))
        values = _summed(self.values, places, starts.size)
        return _unchecked(values, indices[starts], self.dense_shape)

    def _summed_on_gpu(self) -> IndexedSlices:
        with gpu_devices.on_gpu(on_device.index_of(self.values)):
            indices = on_device.placed(self.given_indices)
            num_rows = self._end_of_rows(indices)
            if num_rows is None or not can_sum(len(indices), num_rows):
                return self._summed_by_host_indices()
            found = row_sums(indices, on_device.contiguous(self.values), num_rows)
        return self if found is None else _unchecked(found[1], found[0], self.dense_shape)

    def _end_of_rows(self, indices: Array) -> int | None:
        """Return a number above all indices on a GPU; None if some are negative, or none is there.

        Indices that no `dense_shape` limits are looked at, which waits for the GPU.
        """
        if self.dense_shape is not None:
            return self.dense_shape[0]
        if indices.size == 0 or int(indices.min()) < 0:
            return None
        return int(indices.max()) + 1

    def on_host(self) -> IndexedSlices:
        """Return the same with values and indices on the host; itself if they are there."""
        if isinstance(self.values, np.ndarray):
            return self
        return _unchecked(as_array(self.values), self.indices, self.dense_shape)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        if self.dense_shape is None:
            raise UsageError("IndexedSlices without dense_shape cannot become an array")
        if copy is False:
            raise ValueError("IndexedSlices cannot become an array without a copy")
        once = self.on_host().summed()
        whole = np.zeros(self.dense_shape, self.values.dtype)
        whole[once.indices] = once.values
        return whole if dtype is None else whole.astype(dtype)  # type: ignore[call-overload]


def _unchecked(
    values: Array, indices: Array, dense_shape: tuple[int, ...] | None
) -> IndexedSlices:
    """Return rows that fit each other, and `dense_shape`."""
    made = object.__new__(IndexedSlices)
    made.values, made.given_indices, made.dense_shape = values, indices, dense_shape
    made._indices = None
    return made


def _summed(values: Array, places: Array, count: int) -> Array:
    """Return `count` rows, each the sum of the rows of `values` whose place it is, in order."""
    shape = (count, *values.shape[1:])
    if isinstance(values, np.ndarray):
        sums = np.zeros(shape, values.dtype)
        check_result(add_rows(sums, places, np.ascontiguousarray(values)), "summed")
        return sums
    with gpu_devices.on_gpu(on_device.index_of(values)):
        there = np.zeros_like(values, shape=shape, order="C")
        scatter_add(there, places, on_device.contiguous(values))
    return there
