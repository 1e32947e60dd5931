"""All-reduce short arrays on GPUs by the host: copy them there, call its all-reduce, copy back.

To launch a kernel and to meet twice takes longer, most of all where ranks share a GPU: without MPS
a kernel waits 0.15 to 0.3 ms until the GPU turns to its process, and such copies need not.

A call with `out` needs seven calls of the driver:

1. cudaGetDevice, since the array must be on the current GPU.
2. cudaStreamIsCapturing, since a copy on such a stream would go into the user's graph.
3. cudaMemcpyAsync to the host, behind the last call's copy to the GPU, which nothing waits for:
   on one stream, the end of this copy is the end of that one (`_Slot.is_before`).
4. cudaEventRecord, and
5. cudaEventQuery until the copy is over: it reads a word of memory. cudaStreamSynchronize has no
   deadline, and cudaStreamQuery waits for what other threads queue on the stream, too.
6. cudaMemcpyAsync to the GPU, which the call does not wait for, either. The memory is pinned, so
   that both copies are only queued; if one fails, a later call of the driver tells it.
7. cudaEventRecord, for calls on other streams. To leave it to them is wrong: recorded later, the
   event would be behind what the user has queued since, which may wait for those calls.

A new result takes two more of (1), in CuPy's allocator. What Python has to do is done while a copy
is under way: before (3) the last call's, up to (5) this one's. Between (5) and (6) is no more than
the host's call, which compiled code makes (kernels/bindings/fast_path).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.arrays.conversion import can_be_sent
from mpistrat.collectives.arrays.gpu_streams import is_captured, is_of_one_thread
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.streams import DONE, EventRequest
from mpistrat.errors import MpistratError
from mpistrat.tables.reduction_ops import check_op, result_dtype
from mpistrat.types import Array

__all__ = ["ShortArrays"]

_INLINE_BYTES = 32 << 10  # of NVIDIA's: shorter copies to a GPU come with the commands
_LOOKS = 200  # of about 0.5 µs each, for a copy that nothing has to come before
_MOST_KINDS = 256

_Kind: TypeAlias = tuple[str, np.dtype[Any], tuple[int, ...]]
"""The op, and the dtype and shape of an array."""


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
    runtime
        CuPy's module of that name.
    event, event_at
        When the copies to and from it are done; its address.
    down_at, up_at
        Addresses: of what is sent, and of what comes of it.
    """

    def __init__(self, nbytes: int, region: Array | None) -> None:
        import cupy

        _give_up_parked()
        self.runtime = cupy.cuda.runtime
        self.event = cupy.cuda.Event(disable_timing=True)
        self.event_at = self.event.ptr
        self._last_stream: Callable[[], Any] = _none
        if region is None:
            self.down, self.up = _host_memory(nbytes), _host_memory(nbytes)
        else:
            self.down, self.up = region[:nbytes], region[nbytes : 2 * nbytes]
        self.down_at, self.up_at = self.down.ctypes.data, self.up.ctypes.data
        self._views: dict[_Kind, tuple[Array, Array]] = {}
        # Not its __del__: in a cycle of garbage the event could be destroyed before.
        end = weakref.finalize(self, _park, self.event, self.down, self.up, os.getpid())
        end.atexit = False

    def is_before(self, stream: Any) -> bool:
        """Tell whether all copies to and from it come before what is queued on a stream now.

        False says no more than that its event has to be looked at.
        """
        # Not by the address, which a new stream may have of one that was destroyed meanwhile.
        return self._last_stream() is stream

    def note(self, stream: Any) -> None:
        """Take note of the stream of the copies from now on."""
        if self._last_stream() is not stream:
            self._last_stream = _none if is_of_one_thread(stream) else weakref.ref(stream)

    def views(self, kind: _Kind) -> tuple[Array, Array]:
        """Return both, as arrays like those of a call whose result is like what it is given."""
        views = self._views.get(kind)
        if views is None:
            if len(self._views) >= _MOST_KINDS:
                self._views.clear()
            views = self.view(self.down, *kind[1:]), self.view(self.up, *kind[1:])
            self._views[kind] = views
        return views

    @staticmethod
    def view(memory: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return an array over the beginning of the memory."""
        return np.ndarray(shape, dtype, memory)


def _none() -> None:
    """Stand for the stream of a slot that no stream is known of."""


_parked: list[tuple[Any, Array, Array]] = []  # of slots that are gone, until the event is over


def _park(event: Any, down: Array, up: Array, process: int) -> None:
    """Keep memory that a GPU still reads or writes from being lent out again."""
    if os.getpid() == process and not _is_over(event, 1, _runtime()):
        _parked.append((event, down, up))


def _give_up_parked() -> None:
    _parked[:] = [one for one in _parked if not _is_over(one[0], 1, _runtime())]


def _runtime() -> Any:
    import cupy

    return cupy.cuda.runtime


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
        self._type, self._cuda, self._runtime = cupy.ndarray, cupy.cuda, cupy.cuda.runtime
        self._regions = [] if region is None else [region]
        self._most_in_rows = 0 if are_apart or cupy.cuda.runtime.is_hip else _INLINE_BYTES - 1
        # By GPU, since events are of one. A list's `append` and `pop` are atomic, for threads.
        self._free: dict[int, list[_Slot]] = {}
        self._known: dict[_Kind, bool] = {}

    def takes(self, array: Any, dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays like `array`, with results of `dtype`, go this way on all ranks."""
        return bool(0 < array.size * max(array.itemsize, dtype.itemsize) <= self.most_bytes)

    def allreduce(self, communicator: Any, array: Any, op: str, out: Any) -> Any:
        """All-reduce an array, where a call can begin at once.

        Returns
        -------
        cupy.ndarray or None
            None where it is to go the general way, by :meth:`steps`: the other ranks cannot tell.
        """
        kind = self._kind(array, op)
        if kind is None:
            return None
        index = array.data.device_id
        if index != self._runtime.getDevice() or not _fits(out, array, index):
            return None
        stream = self._cuda.get_current_stream(index)
        slot = self._slot(index, stream)
        if slot is None:
            return None
        try:
            return self._carried(communicator, slot, kind, array, out, stream)
        finally:
            self._free[index].append(slot)

    def _carried(
        self, communicator: Any, slot: _Slot, kind: _Kind, array: Any, out: Any, stream: Any
    ) -> Any:
        """Do what :meth:`allreduce` does, once it has a slot and the current stream."""
        down, up = slot.views(kind)
        nbytes = down.nbytes
        result = self._begun(slot, array, nbytes, out, stream)
        if result is None:
            return None
        if not _is_over(slot.event, _LOOKS, self._runtime):  # behind the user's work, probably
            communicator._engine.wait_before(EventRequest(slot.event), communicator._label)
        communicator._allreduce_from_gpu(down, kind[0], array.data.device_id, out=up)
        try:
            self._copy_up(slot, slot.up_at, result, nbytes, stream)
        except self._runtime.CUDARuntimeError as error:
            raise communicator._engine.take(error) from error
        return result

    def _begun(self, slot: _Slot, array: Any, nbytes: int, out: Any, stream: Any) -> Any:
        """Queue the copy of an array, and return memory for the result; None if either fails."""
        try:
            if is_captured(stream):
                return None
            _copy_down(slot, array.data.ptr, nbytes, stream)
            return self._type(array.shape, array.dtype) if out is None else out
        except Exception:  # noqa: BLE001 - the general way fails, too, and tells the other ranks
            return None

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
        free = self._free.setdefault(index, [])
        try:
            slot = free.pop()
        except IndexError:
            slot = self._new_slot()
        stream = self._cuda.get_current_stream(index)
        try:
            if not slot.is_before(stream):
                yield EventRequest(slot.event)
            down = slot.view(slot.down, source.dtype, source.shape)
            _copy_down(slot, source.data.ptr, down.nbytes, stream)
            yield EventRequest(slot.event)
            found = yield from reduce(down, slot.view(slot.up, result.dtype, result.shape))
            self._copy_up(slot, found.ctypes.data, result, found.nbytes, stream)
        finally:
            free.append(slot)

    def _kind(self, array: Any, op: object) -> _Kind | None:
        """Return what is known by the kind of a call; None if it is none of the usual."""
        if type(array) is not self._type or type(op) is not str or not array._c_contiguous:
            return None
        kind = (op, array.dtype, array.shape)
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= _MOST_KINDS:
                self._known.clear()
            is_known = self.takes(array, array.dtype) and _is_usual(op, array.dtype)
            known = self._known[kind] = is_known
        return kind if known else None

    def _slot(self, index: int, stream: Any) -> _Slot | None:
        """Return a slot, copies to and from which come before what is queued on a stream now."""
        try:
            slot = self._free[index].pop()
        except (KeyError, IndexError):  # the general way makes one
            return None
        if slot.is_before(stream) or _is_over(slot.event, _LOOKS, self._runtime):
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


def _is_over(event: Any, looks: int, runtime: Any) -> bool:
    """Look for a moment whether an event has happened; a failure is the general way's to tell."""
    query, pointer = runtime.eventQuery, event.ptr
    for _ in range(looks):  # noqa: SIM110 - a generator takes 1 µs longer, on the way of a call
        if query(pointer) == DONE:
            return True
    return False


def _copy_down(slot: _Slot, there: int, nbytes: int, stream: Any) -> None:
    """Queue a copy from a GPU to the beginning of a slot, whose event is then its end."""
    runtime, queue = slot.runtime, stream.ptr
    slot.note(stream)
    try:
        runtime.memcpyAsync(slot.down_at, there, nbytes, runtime.memcpyDeviceToHost, queue)
    finally:  # an interrupt may come in between
        runtime.eventRecord(slot.event_at, queue)


def _copy_up_at_once(slot: _Slot, there: int, at: int, nbytes: int, stream: Any) -> None:
    """Queue a copy to a GPU from an address in a slot, whose event is then its end."""
    runtime, queue = slot.runtime, stream.ptr
    try:
        runtime.memcpyAsync(there, at, nbytes, runtime.memcpyHostToDevice, queue)
    finally:
        runtime.eventRecord(slot.event_at, queue)


def _copy_up_in_rows(slot: _Slot, there: int, at: int, nbytes: int, stream: Any) -> None:
    """Queue a copy to a GPU as one of two rows, which its copy engine does.

    A plain one of so few bytes waits until the GPU turns to this process: 0.28 ms instead of
    0.014 on an H200 that two processes use at once, without MPS.
    """
    runtime, width, queue = slot.runtime, nbytes // 2, stream.ptr
    kind = runtime.memcpyHostToDevice
    try:
        runtime.memcpy2DAsync(there, width, at, width, width, 2, kind, queue)
    finally:
        runtime.eventRecord(slot.event_at, queue)
