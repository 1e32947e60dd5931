"""All-reduce short arrays on GPUs by the host: copy them there, call its all-reduce, copy back.

To launch a kernel and to meet twice takes longer, most of all where ranks share a GPU: without MPS
a kernel waits 0.15 to 0.3 ms until the GPU turns to its process, and such copies need not.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import can_be_sent
from mpistrat.collectives.arrays.gpu_streams import is_captured
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.streams import DONE, EventRequest
from mpistrat.errors import MpistratError
from mpistrat.tables.reduction_ops import check_op, result_dtype
from mpistrat.types import Array

__all__ = ["ShortArrays"]

_INLINE_BYTES = 32 << 10  # of NVIDIA's: shorter copies to a GPU come with the commands
_LOOKS = 200  # of about 0.5 µs each, for a copy that nothing has to come before


class _Slot:
    """Memory of the host for what one call sends and for what comes of it.

    Parameters
    ----------
    nbytes
        Length of each.
    region
        Memory to use for both, or None for new memory of this rank alone.

    Attributes
    ----------
    event
        When the copies to and from it are done.
    down_at, up_at
        Addresses: of what is sent, and of what comes of it.
    """

    def __init__(self, nbytes: int, region: Array | None) -> None:
        import cupy

        _give_up_parked()
        self.event = cupy.cuda.Event(disable_timing=True)
        if region is None:
            self.down, self.up = _host_memory(nbytes), _host_memory(nbytes)
        else:
            self.down, self.up = region[:nbytes], region[nbytes : 2 * nbytes]
        self.down_at, self.up_at = self.down.ctypes.data, self.up.ctypes.data
        self._views: dict[tuple[Any, ...], tuple[Array, Array]] = {}
        # Not its __del__: in a cycle of garbage the event could be destroyed before.
        end = weakref.finalize(self, _park, self.event, self.down, self.up, os.getpid())
        end.atexit = False

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


_parked: list[tuple[Any, Array, Array]] = []  # of slots that are gone, until the event is over


def _park(event: Any, down: Array, up: Array, process: int) -> None:
    """Keep memory that a GPU still reads or writes from being lent out again."""
    if os.getpid() == process and not _is_over(event, looks=1):
        _parked.append((event, down, up))


def _give_up_parked() -> None:
    _parked[:] = [one for one in _parked if not _is_over(one[0], looks=1)]


_MOST_VIEWS = 256


class ShortArrays:
    """What all-reduces the short arrays of one communicator.

    Parameters
    ----------
    most_bytes
        The longest arrays, and results, in bytes; the same on all ranks.
    are_apart
        Whether each rank has a GPU of its own.
    region
        Twice as many bytes of pinned memory that all ranks of the node have mapped, which the
        first slot uses (memory/pinned_regions.py), or None.
    """

    def __init__(self, most_bytes: int, are_apart: bool, region: Array | None) -> None:
        import cupy

        self.most_bytes = most_bytes
        self._regions = [] if region is None else [region]
        self._most_in_rows = 0 if are_apart or cupy.cuda.runtime.is_hip else _INLINE_BYTES - 1
        # By GPU, since events are of one. A list's `append` and `pop` are atomic, for threads.
        self._free: dict[int, list[_Slot]] = {}
        self._known: dict[tuple[str, np.dtype[Any]], bool] = {}

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
        stream = cupy.cuda.get_current_stream()
        slot = None if is_captured(stream) else self._slot(index)
        if slot is None:
            return None
        try:
            return self._carried(communicator, slot, array, op, out, stream)
        finally:
            self._free[index].append(slot)

    def _carried(
        self, communicator: Any, slot: _Slot, array: Any, op: str, out: Any, stream: Any
    ) -> Any:
        """Do what :meth:`allreduce` does, once it has a slot and the current stream."""
        import cupy

        down, up = slot.views(array.dtype, array.shape)
        result = _begun(slot, array, down, out, stream)
        if result is None:
            return None
        communicator._allreduce_from_gpu(down, op, array.data.device_id, out=up)
        try:
            self._copy_up(slot, slot.up_at, result, up.nbytes, stream)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise communicator._engine.take(error) from error
        return result

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
            slot = self._new_slot()
        stream = cupy.cuda.get_current_stream()
        try:
            yield EventRequest(slot.event)
            down = slot.view(slot.down, source.dtype, source.shape)
            _copy_down(slot, source.data.ptr, down.nbytes, stream)
            yield EventRequest(slot.event)
            found = yield from reduce(down, slot.view(slot.up, result.dtype, result.shape))
            self._copy_up(slot, found.ctypes.data, result, found.nbytes, stream)
        finally:
            free.append(slot)

    def _is_plain(self, array: Any, op: object) -> bool:
        if type(op) is not str or not self.takes(array, array.dtype):
            return False
        known = self._known.get((op, array.dtype))
        if known is None:
            known = self._known[op, array.dtype] = _is_usual(op, array.dtype)
        return known and bool(array._c_contiguous)

    def _slot(self, index: int) -> _Slot | None:
        """Return a slot that no copy is under way to or from."""
        try:
            slot = self._free[index].pop()
        except (KeyError, IndexError):  # the general way makes one
            return None
        if _is_over(slot.event, _LOOKS):
            return slot
        self._free[index].append(slot)
        return None

    def _new_slot(self) -> _Slot:
        try:
            region = self._regions.pop()
        except IndexError:  # another slot has it
            region = None
        return _Slot(self.most_bytes, region)

    def _copy_up(self, slot: _Slot, at: int, result: Any, nbytes: int, stream: Any) -> None:
        """Queue the copy of a result at an address, which must lie in the slot."""
        if nbytes <= self._most_in_rows and nbytes % 2 == 0:
            _copy_up_in_rows(slot, result.data.ptr, at, nbytes, stream)
        else:
            _copy_up_at_once(slot, result.data.ptr, at, nbytes, stream)


def _is_usual(op: str, dtype: np.dtype[Any]) -> bool:
    """Tell whether a result is like the array; the general way tells what is wrong, too."""
    try:
        check_op(op, dtype)
    except MpistratError:
        return False
    # A view of bools may have other bytes than 0 and 1.
    is_alike = dtype.kind != "b" and result_dtype(op, dtype) == dtype
    return is_alike and dtype.isnative and can_be_sent(dtype)


def _begun(slot: _Slot, array: Any, down: Array, out: Any, stream: Any) -> Any:
    """Copy an array down, and return memory for the result; None if either takes longer."""
    import cupy

    try:
        _copy_down(slot, array.data.ptr, down.nbytes, stream)
        if not _is_over(slot.event, _LOOKS):
            return None
        return cupy.ndarray(array.shape, array.dtype) if out is None else out
    except Exception:  # noqa: BLE001 - the general way fails, too, and tells the other ranks
        return None


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


def _is_over(event: Any, looks: int) -> bool:
    """Look for a moment whether an event has happened; a failure is the general way's to tell."""
    import cupy

    query, pointer = cupy.cuda.runtime.eventQuery, event.ptr
    for _ in range(looks):  # noqa: SIM110 - a generator takes 1 µs longer, on the way of a call
        if query(pointer) == DONE:
            return True
    return False


def _copy_down(slot: _Slot, there: int, nbytes: int, stream: Any) -> None:
    """Queue a copy from a GPU to the beginning of a slot, whose event is then its end."""
    import cupy

    runtime = cupy.cuda.runtime
    try:
        runtime.memcpyAsync(slot.down_at, there, nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    finally:  # an interrupt may come in between
        slot.event.record(stream)


def _copy_up_at_once(slot: _Slot, there: int, at: int, nbytes: int, stream: Any) -> None:
    """Queue a copy to a GPU from an address in a slot, whose event is then its end."""
    import cupy

    runtime = cupy.cuda.runtime
    try:
        runtime.memcpyAsync(there, at, nbytes, runtime.memcpyHostToDevice, stream.ptr)
    finally:
        slot.event.record(stream)


def _copy_up_in_rows(slot: _Slot, there: int, at: int, nbytes: int, stream: Any) -> None:
    """Queue a copy to a GPU as one of two rows, which its copy engine does.

    A plain one of so few bytes waits until the GPU turns to this process: 0.28 ms instead of
    0.014 on an H200 that two processes use at once, without MPS.
    """
    import cupy

    runtime, width = cupy.cuda.runtime, nbytes // 2
    kind = runtime.memcpyHostToDevice
    try:
        runtime.memcpy2DAsync(there, width, at, width, width, 2, kind, stream.ptr)
    finally:
        slot.event.record(stream)
