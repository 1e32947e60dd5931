"""`GpuVariable`: a variable on the GPU of its strategy's only replica."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.errors import UsageError
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.values import Delegate
from mpistrat.strategy.variables.base import Variable
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

    def __init__(self, gpu: int, **options: Any) -> None:
        super().__init__(**options)
        self._gpu = gpu
        try:
            with on_device.on_gpu(gpu):
                self._value = on_device.placed(self._value)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"variable {self._name!r} of dtype {self._value.dtype} on GPU:{gpu}: {error};"
                " take a dtype that CuPy has, or CentralStorageStrategy(...,"
                ' parameter_device="CPU:0")'
            ) from error

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self._value.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the value."""
        return self._value.dtype

    # -------------------------------------------------------------------------------- reading

    def _read(self) -> Array:
        return self._value

    def read_value(self) -> Array:
        """Return a copy of the current value, on the GPU."""
        with on_device.on_gpu(self._gpu):
            # CuPy computes on the current GPU, which may be another one where this is called.
            return self._value.copy()

    def numpy(self) -> Array:
        """Return a copy of the current value, on the host."""
        return self.__array__()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        with on_device.on_gpu(self._gpu):
            return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        with on_device.on_gpu(self._gpu):
            return super().__getitem__(key)

    def _rows(self, rows: Array) -> Array:
        with on_device.on_gpu(self._gpu):
            found: Array = self._value[on_device.placed(rows)]
            return found

    @classmethod
    def read_joined(cls, variables: Sequence[Any]) -> Array:
        """Return the values of the parts of a whole as one, in new memory of the GPU."""
        with on_device.on_gpu(variables[0]._gpu):
            return super().read_joined(variables)

    @classmethod
    def rows_of_parts(cls, variables: Sequence[Any], ranges: RowRanges, rows: Array) -> Array:
        """Return some rows of a whole, on the GPU."""
        routes = ranges.route(rows)
        with on_device.on_gpu(variables[0]._gpu):
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
        with on_device.on_gpu(self._gpu):
            _CHANGES[method](self._value, self._fitting(value, method))
        return self

    def _taken(self, value: ArrayLike, what: str) -> Array:
        """Return `value` in this variable's dtype on its GPU, which is the current one."""
        if isinstance(value, Delegate):
            value = value._read()
        if not on_device.is_elsewhere(value):
            carried: Array = on_device.placed(super()._taken(value, what))
            return carried
        array, dtype = on_device.placed(value), self.dtype
        taken: Array = array.astype(dtype, copy=False)
        may_overflow = dtype.kind in "iu" and array.dtype.itemsize > dtype.itemsize
        if not np.can_cast(array.dtype, dtype, "same_kind") or (
            may_overflow and bool((taken != array).any())
        ):
            raise UsageError(
                f"{what} of an array of dtype {array.dtype} to variable {self._name!r} of dtype"
                f" {dtype}: it would lose more than precision; convert the value with astype"
            )
        return taken

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> GpuVariable:
        """Change rows: those that it is about are brought to the host and back."""
        slices = check_slices(self, method, sparse_delta)
        rows, places = np.unique(slices.indices, return_inverse=True)
        with on_device.on_gpu(self._gpu):
            there = on_device.placed(rows)
            part = np.array(on_device.to_host(self._value[there]))
            scatter(part, method, IndexedSlices(slices.values, places))
            self._value[there] = on_device.placed(part)
        return self
