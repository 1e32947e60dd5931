"""A communicator of which tests see arrays of the host, while the calls have arrays on a GPU.

It lets the tests of backends run on GPUs as they are: every array that a call is given is copied
to the GPU with the memory that it is a view of, so that strides and overlaps stay; what the call
has written, and its result, come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpistrat.collectives.communicator import Communicator
from mpistrat.collectives.progress.work import Work
from mpistrat.types import Array

__all__ = ["OnGpu"]


class OnGpu:
    """See the first lines of this module; what is no call with arrays is the communicator's own.

    Parameters
    ----------
    comm
        Whose calls are made.
    device
        Index of this rank's GPU.
    """

    def __init__(self, comm: Communicator, device: int) -> None:
        self._comm, self._device = comm, device
        self._pending: list[_Later] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._comm, name)
        return self._call(found) if callable(found) else found

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            there = _Memory(self._device)
            with there.device:  # where ranks without an array of their own get theirs
                result = method(
                    *(there.upload(one) for one in arguments),
                    **{name: there.upload(one) for name, one in options.items()},
                )
            for later in self._pending:
                later.download()
            self._pending = [later for later in self._pending if not later.done]
            if not isinstance(result, Work):
                return there.download(result)
            self._pending.append(_Later(result, there))
            return self._pending[-1]

        return call


class _Later:
    """A work whose result comes back to the host."""

    def __init__(self, work: Work[Any], memory: _Memory) -> None:
        self._work, self._memory = work, memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def download(self) -> None:
        """Bring back what the call has written, if it is over."""
        if self._work.done:
            self._memory.download(None)

    def wait(self, timeout: float | None = None) -> Any:
        return self._memory.download(self._work.wait(timeout))


class _Memory:
    """The memory on the GPU (`device`) of the arrays of one call."""

    def __init__(self, device: int) -> None:
        import cupy

        self._cupy, self.device = cupy, cupy.cuda.Device(device)
        self._blocks: dict[int, tuple[Array, Any]] = {}
        self._arrays: list[tuple[Array, Any]] = []
        self._copies: list[tuple[Array, Any]] = []

    def upload(self, value: Any) -> Any:
        """Return a view on the GPU for an array, lists of them, and what is no array as it is."""
        if isinstance(value, list) and value and all(isinstance(x, np.ndarray) for x in value):
            return [self.upload(one) for one in value]
        if not isinstance(value, np.ndarray) or _is_refused(value):
            return value
        if value.ctypes.data % value.itemsize:
            return self._upload_aligned(value)
        base = _base(value)
        with self.device:
            if base.ctypes.data not in self._blocks:
                block = self._cupy.asarray(_as_bytes(base))
                self._blocks[base.ctypes.data] = base, block
            block = self._blocks[base.ctypes.data][1]
            at = self._cupy.cuda.MemoryPointer(block.data.mem, 0) + (
                block.data.ptr - block.data.mem.ptr + value.ctypes.data - base.ctypes.data
            )
            there = self._cupy.ndarray(value.shape, value.dtype, at, value.strides)
        self._arrays.append((value, there))
        return there

    def _upload_aligned(self, value: Array) -> Any:
        """Return an aligned copy: a GPU cannot read other ones."""
        with self.device:
            there = self._cupy.asarray(value.copy())
        self._arrays.append((value, there))
        self._copies.append((value, there))
        return there

    def download(self, result: Any) -> Any:
        """Bring back what the call may have written to; return the result on the host."""
        for base, block in self._blocks.values():
            written = block.get()
            if not np.array_equal(written, _as_bytes(base)):
                _as_bytes(base)[...] = written
        for value, there in self._copies:
            if value.flags.writeable:
                value[...] = there.get()
        return self._host(result)

    def _host(self, result: Any) -> Any:
        if isinstance(result, list) and self._arrays:
            return [self._host(one) for one in result]
        if not isinstance(result, self._cupy.ndarray) and not self._arrays:
            return result  # of a call without arrays
        for value, there in self._arrays:
            if there is result:
                return value
        if result is None:
            return None
        assert isinstance(result, self._cupy.ndarray), f"the result is a {type(result)}"
        assert result.device == self.device, f"the result is on {result.device}"
        return result.get()


def _base(array: Array) -> Array:
    """Return the array that owns the memory which `array` is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _as_bytes(array: Array) -> Array:
    """Return all the memory of an array that owns it, as bytes; a view."""
    flat = array.reshape(-1, order="A") if array.flags.forc else array
    return np.lib.stride_tricks.as_strided(flat, (flat.size,), (flat.itemsize,)).view(np.uint8)


def _is_refused(array: Array) -> bool:
    """Tell whether no array on a GPU can be like this one."""
    is_known = array.dtype.kind in "biufc" or array.dtype.name == "bfloat16"
    return not (is_known and array.dtype.isnative) or type(array) is not np.ndarray
