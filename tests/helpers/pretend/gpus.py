"""Arrays in host memory that act as CuPy's, for tests of copies between host and GPU.

They are as strict as CuPy's: NumPy cannot read them, those of two devices do not mix, and they
compute where their device is the current one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mpistrat.collectives.arrays import on_device

__all__ = ["GpuArray", "pretending"]

_CPU, _GPU = 1, 2  # DLPack's numbers
_current = threading.local()


class GpuArray(NDArrayOperatorsMixin):
    """An array on a pretended GPU.

    Parameters
    ----------
    memory
        Its elements, in host memory that nobody else sees.
    device
        The index of the GPU.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, memory: Any, device: int) -> None:
        self._memory = np.array(memory)
        if self._memory.dtype.kind in "OV":
            raise ValueError(f"Unsupported dtype {self._memory.dtype}")
        self.device = device

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape."""
        return self._memory.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type."""
        return self._memory.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return _GPU, self.device

    def __dlpack__(self, *, dl_device: Any = None, copy: bool | None = None, **given: Any) -> Any:
        if dl_device is None or dl_device[0] != _CPU or copy is False:
            raise BufferError("this array is on a GPU")
        return self._memory.copy().__dlpack__(**given)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [one._memory if self._is_near(one) else one for one in inputs]
        (out,) = kwargs.pop("out", (None,))
        if out is not None and self._is_near(out):
            getattr(ufunc, method)(*plain, out=out._memory, **kwargs)
            return out
        return GpuArray(getattr(ufunc, method)(*plain, **kwargs), self.device)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        if function not in (np.zeros_like, np.concatenate):
            return NotImplemented
        return GpuArray(function(*_plain(self, args), **kwargs), self.device)

    def __getitem__(self, key: Any) -> GpuArray:
        found = self._memory[_plain(self, key)]
        made = GpuArray(found, self.device)
        made._memory = found if isinstance(found, np.ndarray) else made._memory  # a slice: a view
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        self._memory[_plain(self, key)] = _plain(self, value)

    def __float__(self) -> float:
        return float(self._memory)

    def __int__(self) -> int:
        return int(self._memory)

    def __bool__(self) -> bool:
        return bool(self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    def copy(self) -> GpuArray:
        """Return a copy on the current device."""
        return GpuArray(self._memory, _index())

    def astype(self, dtype: Any, copy: bool = True) -> GpuArray:
        """Return the array in another type; CuPy's takes no ``casting`` either."""
        if self.dtype == dtype and not copy:
            return self
        return GpuArray(self._memory.astype(dtype), self.device)

    def reshape(self, shape: Any) -> GpuArray:
        """Return the elements in another shape."""
        return GpuArray(self._memory.reshape(shape), self.device)

    def any(self) -> GpuArray:
        """Tell whether any element is true."""
        return GpuArray(self._memory.any(), self.device)

    def _is_near(self, other: Any) -> bool:
        """Tell whether `other` is an array of this device; raise if it is of another one."""
        if isinstance(other, (int, float, np.generic)):
            return False
        if not isinstance(other, GpuArray):
            raise TypeError(f"Unsupported type {type(other)}")
        if other.device != self.device:
            raise ValueError(f"arrays of GPU {self.device} and GPU {other.device}")
        if self.device != _index():
            raise ValueError(f"an array of GPU {self.device}, and GPU {_index()} is current")
        return True


def _plain(array: GpuArray, nest: Any) -> Any:
    """Return the memory of arrays, indices among them, that are on the device of `array`."""
    if isinstance(nest, (tuple, list)):
        return type(nest)(_plain(array, one) for one in nest)
    if isinstance(nest, slice) or nest is Ellipsis or isinstance(nest, (np.dtype, type)):
        return nest
    return nest._memory if array._is_near(nest) else nest


class _Device:
    """A GPU that is this thread's current one within a block."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(_index())
        _current.index = self._index

    def __exit__(self, *exc: object) -> None:
        _current.index = self._before.pop()


def _index() -> int:
    found: int = getattr(_current, "index", 0)
    return found


def _asarray(value: Any) -> GpuArray:
    if not isinstance(value, GpuArray):
        return GpuArray(value, _index())
    return value if value.device == _index() else value.copy()


@contextmanager
def pretending(count: int) -> Iterator[None]:
    """Let this process have `count` GPUs within the block."""
    runtime = SimpleNamespace(getDeviceCount=lambda: count, CUDARuntimeError=RuntimeError)
    stand_in = SimpleNamespace(
        asarray=_asarray, cuda=SimpleNamespace(Device=_Device, runtime=runtime)
    )
    with patch.object(on_device, "_cupy", lambda: stand_in):
        yield
