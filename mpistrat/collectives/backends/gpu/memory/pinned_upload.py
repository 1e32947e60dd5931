"""Copy lists of arrays from the host to a GPU ahead of their use, on a stream for that alone.

A list travels as one block: through pinned memory, by one copy. A block is used again once no
array shows part of it and the stream that used it has come as far.
"""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.gpu_devices import memory_problem
from mpistrat.collectives.arrays.gpu_streams import stream_for_all_threads
from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = ["Upload", "Uploader"]

_ALIGNMENT = 256  # bytes: where an allocation of its own would begin
_MOST_FREE = 4
_LEAST_BYTES = 4096


class Uploader:
    """What copies lists of arrays to one GPU. Its methods are **Local**.

    Parameters
    ----------
    device
        Index of the GPU.

    Notes
    -----
    Memory of blocks is CuPy's, of the GPU's one stream for copies. It goes back to CuPy with this
    object.
    """

    def __init__(self, device: int) -> None:
        import cupy

        self._device, self._stream = cupy.cuda.Device(device), _copy_stream(device)
        self._free: list[_Block] = []
        self._returned: deque[_Block] = deque()
        self._lock = threading.Lock()

    def begin(self, arrays: Sequence[Array]) -> Upload:
        """Begin to copy; return what gives the copies. Does not wait for a GPU's work.

        Parameters
        ----------
        arrays
            NumPy's, in any order of memory and of bytes; they may be changed after the call.

        Raises
        ------
        BackendUnavailableError
            The GPU has not enough memory.
        """
        ends = np.cumsum([0, *(-(-one.nbytes // _ALIGNMENT) * _ALIGNMENT for one in arrays)])
        places = ends[:-1].tolist()
        block = self._block(int(ends[-1]))
        forms = [(one.shape, one.dtype.newbyteorder("=")) for one in arrays]
        for one, place, form in zip(arrays, places, forms, strict=True):
            block.host_view(place, *form)[...] = one  # in this machine's byte order, too
        block.copy(int(ends[-1]))
        return Upload(block, list(zip(places, forms, strict=True)), self._give_back)

    def _block(self, nbytes: int) -> _Block:
        """Return a block that no array shows part of, and that has been copied if it was used."""
        block = self._fitting(nbytes)
        if block is not None:
            block.finish()
            return block
        try:
            with self._device, self._stream:
                return _Block(max(nbytes, _LEAST_BYTES), self._device, self._stream)
        except Exception as error:
            problem = memory_problem(error)
            if problem is None:
                raise
            raise BackendUnavailableError(
                f"a batch of {nbytes} bytes on GPU:{self._device.id}: {problem}; take smaller"
                " batches, InputOptions(experimental_per_replica_buffer_size=0), which prepares"
                " none ahead, or experimental_fetch_to_device=False"
            ) from error

    def _fitting(self, nbytes: int) -> _Block | None:
        """Take a free block of about that size; iterators of one data set share this object."""
        with self._lock:
            while self._returned:
                self._free.append(self._returned.popleft())
            dropped = self._free[:-_MOST_FREE]
            del self._free[:-_MOST_FREE]
            fitting = [
                one for one in self._free if nbytes <= one.nbytes <= 2 * max(nbytes, _LEAST_BYTES)
            ]
            if fitting:
                self._free.remove(fitting[0])
        del dropped  # outside of the lock: that may wait
        return fitting[0] if fitting else None

    def _give_back(self, block: _Block) -> None:
        self._returned.append(block)  # in any thread, at any moment: nothing that waits


@lru_cache(maxsize=64)
def _copy_stream(device: int) -> Any:
    """Return the stream on which this process copies to a GPU.

    It is never destroyed: CuPy keeps freed memory by its stream's address, which another stream
    could have next, without the order in which this one has used the memory.
    """
    import cupy

    with cupy.cuda.Device(device):
        return cupy.cuda.Stream(non_blocking=True)


class _Block:
    """Memory on a GPU, and as much pinned memory of the host; made on the stream that copies."""

    def __init__(self, nbytes: int, device: Any, stream: Any) -> None:
        import cupy

        self.nbytes, self.device, self._stream = nbytes, device, stream
        self._copied, self._read = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
        self.memory = cupy.cuda.alloc(nbytes)
        self._pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def host_view(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array over pinned memory from a byte on."""
        nbytes = math.prod(shape) * dtype.itemsize
        return self._pinned[start : start + nbytes].view(dtype).reshape(shape)

    def copy(self, nbytes: int) -> None:
        """Queue the copy of the first bytes to the GPU."""
        import cupy

        runtime = cupy.cuda.runtime
        with self.device:
            if nbytes:
                places = self.memory.ptr, self._pinned.ctypes.data
                kind = runtime.memcpyHostToDevice
                runtime.memcpyAsync(*places, nbytes, kind, self._stream.ptr)
            self._copied.record(self._stream)

    def wait_copied(self, stream: Any) -> None:
        """Let a stream wait for the copy."""
        stream.wait_event(self._copied)

    def release(self, stream: Any) -> None:
        """Note that nothing queued on a stream from now on uses the block."""
        with self.device:
            self._read.record(stream)

    def finish(self) -> None:
        """Let what is copied next wait for what used the block, and this thread for its copy."""
        self._stream.wait_event(self._read)
        self._copied.synchronize()  # most often long done: the block was used since

    def __del__(self) -> None:
        """Keep CuPy, which takes the memory back, from lending it out too soon."""
        if sys is not None and not sys.is_finalizing():
            import cupy

            with suppress(cupy.cuda.runtime.CUDARuntimeError):  # a GPU that failed reads no more
                self.finish()


class Upload:
    """A list of arrays on its way to a GPU."""

    def __init__(
        self,
        block: _Block,
        parts: list[tuple[int, tuple[tuple[int, ...], np.dtype[Any]]]],
        give_back: Callable[[_Block], None],
    ) -> None:
        self._block, self._parts, self._give_back = block, parts, give_back

    def take(self) -> list[Any]:
        """Return the arrays of CuPy, for work on the current stream; to be called once.

        Their memory is used again after that stream has come to where the last of them is
        dropped: to use them on another stream, let that stream and this one wait for each other.
        """
        import cupy

        block = self._block
        with block.device:
            stream = stream_for_all_threads()  # of the one that drops the last array, too
            block.wait_copied(stream)
            loan = _Loan()
            # Not its __del__: in a cycle of garbage the block's events could be destroyed before.
            end = weakref.finalize(loan, _end_loan, block, stream, self._give_back)
            end.atexit = False
            memory = cupy.cuda.UnownedMemory(block.memory.ptr, block.nbytes, loan, block.device.id)
            return [
                cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, place))
                for place, (shape, dtype) in self._parts
            ]


class _Loan:
    """What arrays over a block refer to."""


def _end_loan(block: _Block, stream: Any, give_back: Callable[[_Block], None]) -> None:
    import cupy

    try:
        block.release(stream)
    except cupy.cuda.runtime.CUDARuntimeError:
        return  # the GPU has failed, which its next call says; the block goes back to CuPy
    give_back(block)
