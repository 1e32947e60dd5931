"""Arrays of the host that act as a GPU's, for tests of what moves between the two.

They are as strict as CuPy's: NumPy cannot read them, and those of two devices do not mix.
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

from mpistrat.collectives import cuda

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

    def __init__(self, memory: Any, device: int) -> None:
        self._memory = np.array(memory)
        self.device = device
        self.shape, self.dtype = self._memory.shape, self._memory.dtype

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
        return GpuArray(getattr(ufunc, method)(*plain, **kwargs), self.device)

    def _is_near(self, other: Any) -> bool:
        """Tell whether `other` is an array of this device; raise if it is of another one."""
        if isinstance(other, (int, float)):
            return False
        if not isinstance(other, GpuArray):
            raise TypeError(f"Unsupported type {type(other)}")
        if other.device != self.device:
            raise ValueError(f"arrays of GPU {self.device} and GPU {other.device}")
        return True


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
    return GpuArray(value, _index())


@contextmanager
def pretending(count: int) -> Iterator[None]:
    """Let this process have `count` GPUs within the block."""
    runtime = SimpleNamespace(getDeviceCount=lambda: count, CUDARuntimeError=RuntimeError)
    stand_in = SimpleNamespace(
        asarray=_asarray, cuda=SimpleNamespace(Device=_Device, runtime=runtime)
    )
    with patch.object(cuda, "_cupy", lambda: stand_in):
        yield
