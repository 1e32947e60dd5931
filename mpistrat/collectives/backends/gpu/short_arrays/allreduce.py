"""All-reduce short arrays on GPUs by the host: copy them there, call its all-reduce, copy back.

To launch a kernel and to meet twice takes longer, most of all where ranks share a GPU: without MPS
a kernel waits 0.15 to 0.3 ms until the GPU turns to its process, and such copies need not.

A call with `out` needs seven calls of the driver:

1. cudaGetDevice, since the array must be on the current GPU.
2. cudaStreamIsCapturing, since a copy on such a stream would go into the user's graph.
3. cudaMemcpyAsync to the host, behind the last call's copy to the GPU, which nothing waits for:
   on one stream, the end of this copy is the end of that one (`HostSlot.is_before`).
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

from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import can_be_sent
from mpistrat.collectives.arrays.gpu_streams import is_captured
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.short_arrays.copies import (
    copy_down,
    copy_up_at_once,
    copy_up_in_rows,
)
from mpistrat.collectives.backends.gpu.short_arrays.host_slot import (
    MAX_KINDS,
    HostSlot,
    Kind,
    is_over,
)
from mpistrat.collectives.backends.gpu.streams import EventRequest
from mpistrat.errors import MpistratError
from mpistrat.tables.reduction_ops import check_op, result_dtype
from mpistrat.types import Array

__all__ = ["ShortArrays"]

_INLINE_BYTES = 32 << 10  # of NVIDIA's: shorter copies to a GPU come with the commands
_LOOKS = 200  # of about 0.5 µs each, for a copy that nothing has to come before


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
        self._free: dict[int, list[HostSlot]] = {}
        self._known: dict[Kind, bool] = {}

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
        self, communicator: Any, slot: HostSlot, kind: Kind, array: Any, out: Any, stream: Any
    ) -> Any:
        """Do what :meth:`allreduce` does, once it has a slot and the current stream."""
        down, up = slot.views(kind)
        nbytes = down.nbytes
        result = self._begun(slot, array, nbytes, out, stream)
        if result is None:
            return None
        if not is_over(slot.event, _LOOKS, self._runtime):  # behind the user's work, probably
            communicator._engine.wait_before(EventRequest(slot.event), communicator._label)
        communicator._allreduce_from_gpu(down, kind[0], array.data.device_id, out=up)
        try:
            self._copy_up(slot, slot.up_at, result, nbytes, stream)
        except self._runtime.CUDARuntimeError as error:
            raise communicator._engine.take(error) from error
        return result

    def _begun(self, slot: HostSlot, array: Any, nbytes: int, out: Any, stream: Any) -> Any:
        """Queue the copy of an array, and return memory for the result; None if either fails."""
        try:
            if is_captured(stream):
                return None
            copy_down(slot, array.data.ptr, nbytes, stream)
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
            copy_down(slot, source.data.ptr, down.nbytes, stream)
            yield EventRequest(slot.event)
            found = yield from reduce(down, slot.view(slot.up, result.dtype, result.shape))
            self._copy_up(slot, found.ctypes.data, result, found.nbytes, stream)
        finally:
            free.append(slot)

    def _kind(self, array: Any, op: object) -> Kind | None:
        """Return what is known by the kind of a call; None if it is none of the usual."""
        if type(array) is not self._type or type(op) is not str or not array._c_contiguous:
            return None
        kind = (op, array.dtype, array.shape)
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= MAX_KINDS:
                self._known.clear()
            is_known = self.takes(array, array.dtype) and _is_usual(op, array.dtype)
            known = self._known[kind] = is_known
        return kind if known else None

    def _slot(self, index: int, stream: Any) -> HostSlot | None:
        """Return a slot, copies to and from which come before what is queued on a stream now."""
        try:
            slot = self._free[index].pop()
        except (KeyError, IndexError):  # the general way makes one
            return None
        if slot.is_before(stream) or is_over(slot.event, _LOOKS, self._runtime):
            return slot
        self._free[index].append(slot)
        return None

    def _new_slot(self) -> HostSlot:
        try:
            region = self._regions.pop()
        except IndexError:  # another slot has it
            region = None
        return HostSlot(self.most_bytes, region)

    def _copy_up(self, slot: HostSlot, at: int, result: Any, nbytes: int, stream: Any) -> None:
        """Queue the copy of a result at an address, which must lie in the slot."""
        if nbytes <= self._most_in_rows and nbytes % 2 == 0:
            copy_up_in_rows(slot, result.data.ptr, at, nbytes, stream)
        else:
            copy_up_at_once(slot, result.data.ptr, at, nbytes, stream)


def _is_usual(op: str, dtype: np.dtype[Any]) -> bool:
    """Tell whether a result is like the array; the general way tells what is wrong, too."""
    try:
        check_op(op, dtype)
    except MpistratError:
        return False
    # A view of bools may have other bytes than 0 and 1.
    is_alike = dtype.kind != "b" and result_dtype(op, dtype) == dtype
    return is_alike and dtype.isnative and can_be_sent(dtype)


def _fits(out: Any, array: Any, index: int) -> bool:
    """Tell whether a result like `array` can be copied to `out`, if that is given."""
    return out is None or (
        type(out) is type(array)
        and out.dtype == array.dtype
        and out.shape == array.shape
        and out.data.device_id == index
        and bool(out._c_contiguous)
    )
