"""All-reduce short arrays on GPUs through memory of the host, as one call of the host's.

To launch a kernel and to meet twice takes longer than to copy such arrays down and up, most of all
where ranks share a GPU: it turns from one process to the other within 0.15 ms, which only copies
need not wait for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.streams import DONE, EventRequest
from mpistrat.types import Array

__all__ = ["ShortArrays"]

_INLINE_BYTES = 32 << 10  # of NVIDIA's: shorter copies to a GPU come with the commands
_LOOKS = 200  # of about 0.5 µs each, for a copy that nothing has to come before


class _Slot:
    """Memory of the host for what one call sends and for what comes of it.

    Attributes
    ----------
    event
        When the copies to and from it are done.
    """

    def __init__(self, nbytes: int) -> None:
        import cupy

        self.event = cupy.cuda.Event(disable_timing=True)
        self.down, self.up = _host_memory(nbytes), _host_memory(nbytes)
        self._views: dict[tuple[Any, ...], tuple[Array, Array]] = {}

    def views(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return both, as arrays like those of a call whose result is like what it is given."""
        views = self._views.get((dtype, shape))
        if views is None:
            if len(self._views) > _MOST_VIEWS:
                self._views.clear()
            views = self.view(self.down, dtype, shape), self.view(self.up, dtype, shape)
            self._views[dtype, shape] = views
        return views

    @staticmethod
    def view(memory: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return an array over the beginning of the memory."""
        return np.ndarray(shape, dtype, memory)


_MOST_VIEWS = 256


class ShortArrays:
    """What all-reduces the short arrays of one communicator.

    Parameters
    ----------
    most_bytes
        The longest arrays, and results, in bytes; the same on all ranks.
    are_apart
        Whether each rank has a GPU of its own.
    """

    def __init__(self, most_bytes: int, are_apart: bool) -> None:
        import cupy

        self.most_bytes = most_bytes
        self._most_in_rows = 0 if are_apart or cupy.cuda.runtime.is_hip else _INLINE_BYTES - 1
        # By GPU, since events are of one. A list's `append` and `pop` are atomic, for threads.
        self._free: dict[int, list[_Slot]] = {}

    def takes(self, array: Any, dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays like `array`, with results of `dtype`, go this way on all ranks."""
        return bool(0 < array.size * max(array.itemsize, dtype.itemsize) <= self.most_bytes)

    def allreduce(self, communicator: Any, array: Any, op: str, out: Any) -> Any:
        """All-reduce an array, where nothing has to be waited for before that.

        Returns
        -------
        cupy.ndarray or None
            None where it is to go the general way, by :meth:`steps`: the other ranks cannot tell.
        """
        import cupy

        if type(array) is not cupy.ndarray or not self._is_plain(array, op):
            return None
        index = array.data.device_id
        if index != cupy.cuda.runtime.getDevice() or not _fits(out, array, index):
            return None
        slot = self._slot(index)
        if slot is None:
            return None
        stream = cupy.cuda.get_current_stream()
        down, up = slot.views(array.dtype, array.shape)
        result = self._begun(slot, array, down, out, stream)
        if result is None:
            self._free[index].append(slot)
            return None
        communicator._allreduce_from_gpu(down, op, index, out=up)
        try:
            self._copy_up(slot, index, up, result, stream)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise communicator._engine.take(error) from error
        return result

    @staticmethod
    def _begun(slot: _Slot, array: Any, down: Array, out: Any, stream: Any) -> Any:
        """Copy an array down, and return memory for the result; None if either takes longer."""
        import cupy

        try:
            _copy(array.data.ptr, down, stream, is_up=False)
            slot.event.record(stream)
            if not _is_over(slot.event):
                return None
            return cupy.empty_like(array) if out is None else out
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.memory.OutOfMemoryError):
            return None  # the general way fails, too, and tells the other ranks

    def steps(self, source: Any, result: Any, index: int, reduce: Any) -> Steps:
        """All-reduce an array that lies contiguously, as steps of a call.

        Parameters
        ----------
        source, result
            Arrays of CuPy on the current GPU.
        index
            Of that GPU.
        reduce
            From an array of the host and memory for the result, makes the steps of the host's
            call, which return the result.
        """
        import cupy

        free = self._free.setdefault(index, [])
        try:
            slot = free.pop()
        except IndexError:
            slot = _Slot(self.most_bytes)
        stream = cupy.cuda.get_current_stream()
        yield EventRequest(slot.event)
        down = slot.view(slot.down, source.dtype, source.shape)
        _copy(source.data.ptr, down, stream, is_up=False)
        slot.event.record(stream)
        yield EventRequest(slot.event)
        found = yield from reduce(down, slot.view(slot.up, result.dtype, result.shape))
        self._copy_up(slot, index, found, result, stream)

    def _is_plain(self, array: Any, op: object) -> bool:
        kind = array.dtype.kind
        if kind == "b" or (kind in "iu" and op == "mean"):  # results of another dtype, or bytes
            return False
        return self.takes(array, array.dtype) and bool(array._c_contiguous)

    def _slot(self, index: int) -> _Slot | None:
        """Return a slot that no copy is under way to or from."""
        try:
            slot = self._free[index].pop()
        except (KeyError, IndexError):  # the general way makes one
            return None
        if _is_over(slot.event):
            return slot
        self._free[index].append(slot)
        return None

    def _copy_up(self, slot: _Slot, index: int, found: Array, result: Any, stream: Any) -> None:
        """Queue the copy of a result, which must lie in the slot."""
        if found.nbytes <= self._most_in_rows and found.nbytes % 2 == 0:
            _copy_up_in_rows(result.data.ptr, found, stream)
        else:
            _copy(result.data.ptr, found, stream, is_up=True)
        slot.event.record(stream)
        self._free[index].append(slot)


def _host_memory(nbytes: int) -> Array:
    """Return pinned memory; where none is left, copies take longer."""
    pinned = _pinned(nbytes)
    return np.empty(nbytes, np.uint8) if pinned is None else pinned


def _pinned(nbytes: int) -> Array | None:
    import cupy

    try:
        return np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
    except cupy.cuda.runtime.CUDARuntimeError:
        return None


def _fits(out: Any, array: Any, index: int) -> bool:
    """Tell whether a result like `array` can be copied to `out`, if that is given."""
    return out is None or (
        type(out) is type(array)
        and out.dtype == array.dtype
        and out.shape == array.shape
        and out.data.device_id == index
        and bool(out._c_contiguous)
    )


def _is_over(event: Any) -> bool:
    """Look for a moment whether an event has happened; a failure is the general way's to tell."""
    import cupy

    query, pointer = cupy.cuda.runtime.eventQuery, event.ptr
    return any(query(pointer) == DONE for _ in range(_LOOKS))


def _copy(there: int, here: Array, stream: Any, *, is_up: bool) -> None:
    """Queue a copy between a GPU and memory of the host."""
    import cupy

    runtime = cupy.cuda.runtime
    if is_up:
        kind, to, source = runtime.memcpyHostToDevice, there, here.ctypes.data
    else:
        kind, to, source = runtime.memcpyDeviceToHost, here.ctypes.data, there
    runtime.memcpyAsync(to, source, here.nbytes, kind, stream.ptr)


def _copy_up_in_rows(there: int, here: Array, stream: Any) -> None:
    """Queue a copy to a GPU as one of two rows, which its copy engine does.

    A plain one of so few bytes waits until the GPU turns to this process: 0.28 ms instead of
    0.014 on an H200 that two processes use at once, without MPS.
    """
    import cupy

    runtime, width = cupy.cuda.runtime, here.nbytes // 2
    kind = runtime.memcpyHostToDevice
    runtime.memcpy2DAsync(there, width, here.ctypes.data, width, width, 2, kind, stream.ptr)
