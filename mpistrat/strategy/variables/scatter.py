"""Read and change some rows of a variable, of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.context import placed
from mpistrat.strategy.indexed_slices import IndexedSlices, as_rows, rows_outside
from mpistrat.strategy.variables.casting import fitting
from mpistrat.tables import rows as row_functions
from mpistrat.types import Array, ArrayLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Scattered", "check_rows", "check_slices", "scatter"]

_UFUNCS = {
    "scatter_mul": np.multiply,
    "scatter_div": np.true_divide,
    "scatter_max": np.maximum,
    "scatter_min": np.minimum,
}


class Scattered:
    """Base of variables and tables whose rows can be read and scattered to.

    Each takes `IndexedSlices` whose indices are rows of this variable and whose values have the
    shape of rows. A row that comes twice is changed twice, except by ``scatter_update``, after
    which it is the last one. All is checked before anything is changed.

    Raises
    ------
    ArgumentTypeError
        The argument is no `IndexedSlices`.
    UsageError
        The rows are not there, or not of that shape or dtype.

    References
    ----------
    tf.Variable.scatter_add and so on.
    """

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> Self:
        raise NotImplementedError

    def _rows(self, rows: Array) -> Array:
        raise NotImplementedError

    def scatter_add(self, sparse_delta: IndexedSlices) -> Self:
        """Add to some rows. Returns this variable."""
        return self._scatter("scatter_add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices) -> Self:
        """Subtract from some rows. Returns this variable."""
        return self._scatter("scatter_sub", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices) -> Self:
        """Multiply some rows. Returns this variable."""
        return self._scatter("scatter_mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices) -> Self:
        """Divide some rows, of a floating type. Returns this variable."""
        return self._scatter("scatter_div", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices) -> Self:
        """Take the larger value in some rows. Returns this variable."""
        return self._scatter("scatter_max", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices) -> Self:
        """Take the smaller value in some rows. Returns this variable."""
        return self._scatter("scatter_min", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices) -> Self:
        """Set some rows. Returns this variable."""
        return self._scatter("scatter_update", sparse_delta)

    def batch_scatter_update(self, sparse_delta: IndexedSlices) -> Self:
        """Set some rows: `IndexedSlices` have no batches of indices. Returns this variable."""
        return self._scatter("scatter_update", sparse_delta)

    def sparse_read(self, indices: ArrayLike) -> Array:
        """Return a copy of some rows.

        Parameters
        ----------
        indices
            Rows, whole numbers of any shape [...].

        Returns
        -------
        Array
            Of shape [..., and that of a row], in the order of `indices`. In a replica of a
            worker on a GPU it is there.
        """
        rows = as_array(check_rows(self, "sparse_read", indices))
        found = self._rows(rows.ravel()).reshape((*rows.shape, *_shape(self)[1:]))
        return placed(found)


def scatter(value: Array, method: str, slices: IndexedSlices) -> None:
    """Change rows of an array in C order in place by a scatter method; `slices` are checked."""
    new = np.ascontiguousarray(slices.values)
    # Rows of the variable itself: they would be read after they were changed.
    if np.may_share_memory(new, value):
        new = new.copy()
    rows = np.ascontiguousarray(slices.indices, np.int64)
    if method == "scatter_update":
        row_functions.check_result(row_functions.put_rows(value, rows, new), method)
    elif method in ("scatter_add", "scatter_sub"):
        new = new if method == "scatter_add" else np.negative(new)
        row_functions.check_result(row_functions.add_rows(value, rows, new), method)
    else:
        _UFUNCS[method].at(value, rows, new)


def check_slices(variable: Any, method: str, slices: Any) -> IndexedSlices:
    """Return `slices` with values in the variable's dtype, or raise."""
    name, dtype = variable.name, variable.dtype
    if not isinstance(slices, IndexedSlices):
        raise ArgumentTypeError(
            f"{method} of a {type(slices).__name__} to variable {name!r}; expected IndexedSlices"
        )
    check_rows(variable, method, slices.given_indices)
    expected = (slices.given_indices.size, *variable.shape[1:])
    if slices.values.shape != expected:
        raise UsageError(
            f"{method} of values of shape {slices.values.shape} to {expected[0]} rows of"
            f" variable {name!r} of shape {variable.shape}; expected values of shape {expected}"
        )
    if method == "scatter_div" and dtype.kind in "biu":
        raise UsageError(
            f"scatter_div to variable {name!r} of dtype {dtype}: the quotients are no whole"
            " numbers; expected a floating type"
        )
    if method == "scatter_sub" and dtype.kind == "b":
        raise UsageError(f"scatter_sub to variable {name!r} of dtype bool; expected numbers")
    values = fitting(slices.values, dtype, f"{method} of {{}} to variable {name!r}")
    return slices.with_values(values, variable.shape)


def check_rows(variable: Any, method: str, indices: ArrayLike) -> Array:
    """Return `indices` as an array, where they are; raise unless all are rows of `variable`."""
    shape = _shape(variable)
    what = f"{method} of variable {variable.name!r} of shape {shape}"
    rows = as_rows(indices, what)
    if not shape:
        raise UsageError(f"{what}, which has no rows; expected a variable with an axis")
    wrong = rows_outside(rows, shape[0])
    if wrong.size:
        raise UsageError(
            f"{what}: {wrong.size} of {rows.size} indices are no rows of it, the first is"
            f" {wrong.flat[0]}; expected 0 to {shape[0] - 1}"
        )
    return rows


def _shape(variable: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = variable.shape
    return shape
