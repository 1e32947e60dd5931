"""`GpuVariable`: a variable, or a replica's copy of one, on a GPU."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.arrays.conversion import as_operand
from mpistrat.collectives.backends.gpu.kernels.rows import scatter_add
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.variables.base import Variable, check_initial
from mpistrat.strategy.variables.casting import fitting
from mpistrat.strategy.variables.scatter import check_slices, scatter
from mpistrat.tables.row_ranges import RowRanges
from mpistrat.types import Array, ArrayLike

__all__ = ["GpuVariable"]


def _set(memory: Array, value: Array) -> None:
    memory[...] = value


_CHANGES: dict[str, Callable[[Array, Array], Any]] = {
    "assign": _set,
    "assign_add": operator.iadd,
    "assign_sub": operator.isub,
}


class GpuVariable(Variable):
    """An array on a GPU; reads and assignments there do not go through the host.

    Arrays of the host are taken too, and carried there. `numpy`, ``np.asarray`` and ``float`` read
    on the host.

    Parameters
    ----------
    gpu
        The index of the GPU.
    options
        The arguments of `Variable`.

    Notes
    -----
    CuPy has no read-only arrays: changing the result of `value` changes the variable.
    """

    __hash__ = object.__hash__

    def __init__(
        self,
        gpu: int,
        initial_value: ArrayLike | Callable[[], ArrayLike],
        dtype: Any = None,
        shape: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        self._set_options(**options)
        self._gpu = gpu
        value = as_operand(initial_value() if callable(initial_value) else initial_value)
        check_initial(options.get("name"), value, shape)
        with gpu_devices.on_gpu(gpu):
            # A copy in C order: kernels change rows in place.
            self._value = on_device.placed(value).astype(dtype or value.dtype, "C", copy=True)

    # -------------------------------------------------------------------------------- reading

    def _read(self) -> Array:
        return self._value

    def read_value(self) -> Array:
        """Return a copy of the current value, on the GPU."""
        with gpu_devices.on_gpu(self._gpu):
            # CuPy computes on the current GPU, which may be another one where this is called.
            return self._value.copy()

    def numpy(self) -> Array:
        """Return a copy of the current value, on the host."""
        return self.__array__()

    def __cupy_get_ndarray__(self) -> Array:
        """Hand a copy to functions of CuPy, which would read it on the host otherwise.

        Not the memory itself: ``cupy.asarray(v)`` may be written to.
        """
        with gpu_devices.on_gpu(self._gpu):
            return self._read().copy()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        with gpu_devices.on_gpu(self._gpu):
            return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        with gpu_devices.on_gpu(self._gpu):
            return super().__getitem__(key)

    def _rows(self, rows: Array) -> Array:
        with gpu_devices.on_gpu(self._gpu):
            found: Array = self._value[on_device.placed(rows)]
            return found

    @classmethod
    def read_joined(cls, variables: Sequence[Any]) -> Array:
        """Return the values of the parts of a whole as one, in new memory of the GPU."""
        with gpu_devices.on_gpu(variables[0]._gpu):
            return super().read_joined(variables)

    @classmethod
    def rows_of_parts(cls, variables: Sequence[Any], ranges: RowRanges, rows: Array) -> Array:
        """Return some rows of a whole, on the GPU."""
        routes = ranges.route(rows)
        with gpu_devices.on_gpu(variables[0]._gpu):
            result = np.zeros_like(variables[0]._value, shape=(rows.size, *variables[0].shape[1:]))
            for one, route in zip(variables, routes, strict=True):
                where = slice(None) if route.where is None else on_device.placed(route.where)
                result[where] = one._rows(route.rows)
            return result

    def __repr__(self) -> str:
        value = self.numpy()
        shown = repr(value.item()) if value.ndim == 0 else repr(value)
        return (
            f"<mpistrat.Variable '{self._name}' shape={value.shape} dtype={value.dtype.name},"
            f" on GPU:{self._gpu}, numpy={shown}>"
        )

    __str__ = __repr__

    # ------------------------------------------------------------------------------- changing

    def _assign(self, method: str, value: ArrayLike) -> Variable:
        with gpu_devices.on_gpu(self._gpu):
            _CHANGES[method](self._value, self._fitting(value, method))
        return self

    def _taken(self, value: ArrayLike, what: str) -> Array:
        """Return `value` in this variable's dtype on its GPU, which is the current one."""
        carried: Array = on_device.placed(fitting(value, self.dtype, self._what(what)))
        return carried

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> GpuVariable:
        """Change rows; by other methods than sums they are brought to the host and back."""
        slices = check_slices(self, method, sparse_delta)
        if method in ("scatter_add", "scatter_sub") and self.dtype.kind != "b":
            self._add_rows(slices, is_sum=method == "scatter_add")
        else:
            self._scatter_on_host(method, slices.on_host())
        return self

    def _add_rows(self, slices: IndexedSlices, *, is_sum: bool) -> None:
        with gpu_devices.on_gpu(self._gpu):
            values = on_device.contiguous(on_device.placed(slices.values))
            if np.may_share_memory(values, self._value):
                values = values.copy()  # rows of this variable: read before they are changed
            indices = slices.given_indices
            if not isinstance(indices, np.ndarray):
                indices = on_device.placed(indices)
            added = values if is_sum else np.negative(values)
            scatter_add(self._value, indices, added, are_checked=True)

    def _scatter_on_host(self, method: str, slices: IndexedSlices) -> None:
        rows, places = np.unique(slices.indices, return_inverse=True)
        with gpu_devices.on_gpu(self._gpu):
            there = on_device.placed(rows)
            part = np.array(on_device.to_host(self._value[there]))
            scatter(part, method, IndexedSlices(slices.values, places))
            self._value[there] = on_device.placed(part)
