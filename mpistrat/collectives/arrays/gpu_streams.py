"""Streams of GPUs: which one is current, and work on it that other threads go on with.

As in on_device.py, CuPy is needed for those who have an array of it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

from mpistrat.errors import UsageError

_CAPTURE_IMPLICIT = 906  # cudaErrorStreamCaptureImplicit, and HIP's
_PER_THREAD = "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"

__all__ = [
    "StreamHere",
    "foreign_stream",
    "is_captured",
    "is_of_one_thread",
    "recorded",
    "refuse_capture",
    "run_on",
    "stream_for_all_threads",
]


def stream_for_all_threads() -> Any:
    """Return a stream that is in the order of this thread's current one, whichever thread uses it.

    The current one itself; but with CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1 the legacy default
    stream, which synchronizes with each thread's own one, for that is another one in each thread.
    """
    stream = _cupy().cuda.get_current_stream()
    return _default_stream() if stream.ptr == _cupy().cuda.runtime.streamPerThread else stream


def _default_stream() -> Any:
    """Return the default stream of all threads."""
    # Not `Stream.null`, which CuPy takes for the thread's own one with that setting.
    return foreign_stream(_cupy().cuda.runtime.streamLegacy)


def is_of_one_thread(stream: Any) -> bool:
    """Tell whether an object of CuPy may stand for another stream in each thread."""
    has_own = os.environ.get(_PER_THREAD, "0") != "0"
    return stream.ptr == _cupy().cuda.runtime.streamPerThread or (has_own and stream.ptr == 0)


@cache
def foreign_stream(pointer: int, device: int = -1) -> Any:
    """Return the object of CuPy for a stream that it has not made; the same one each time.

    Parameters
    ----------
    pointer
        The stream, which stays to the end of the process.
    device
        Index of its GPU; -1 for a default stream, of which each GPU has one.
    """
    cuda = _cupy().cuda
    if not hasattr(cuda.Stream, "from_external"):  # CuPy 13
        return cuda.ExternalStream(pointer, device)
    stream = cuda.Stream.from_external(_Foreign(pointer))
    stream.device_id = device  # some versions of from_external set none, others the current one
    return stream


class _Foreign:
    """A stream, for those who ask for it by the protocol of CUDA's libraries."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def is_captured(stream: Any) -> bool:
    """Tell whether what is queued on a stream is recorded for a graph instead of being done.

    True also where the driver refuses to tell, since another stream is captured that waits for
    this one. False for a GPU that has failed; the next call raises its error.
    """
    try:
        return bool(stream.is_capturing())
    except _cupy().cuda.runtime.CUDARuntimeError as error:
        return bool(error.status == _CAPTURE_IMPLICIT)


def refuse_capture() -> None:
    """Raise if what is queued on the current stream is recorded for a graph. **Local.**

    Raises
    ------
    UsageError
        It is.
    """
    if is_captured(_cupy().cuda.get_current_stream()):
        raise UsageError(
            "a call on a stream that is being captured: a graph cannot hold communication between"
            " ranks; make the call before begin_capture() or after end_capture(), or on another"
            " stream"
        )


class StreamHere:
    """A GPU, and its stream that is the current one of the thread which makes this object.

    Parameters
    ----------
    index
        Of the GPU.
    """

    def __init__(self, index: int) -> None:
        self._device = _cupy().cuda.Device(index)
        with self._device:
            self._stream = stream_for_all_threads()

    @contextmanager
    def current(self) -> Generator[None, None, None]:
        """Make both the current ones of the calling thread in a block."""
        with self._device, self._stream:
            yield

    @contextmanager
    def between(self) -> Generator[None, None, None]:
        """Order what others queue on the stream in a block with this thread's current stream.

        It is behind what this thread has queued before, and what it queues later is behind that.
        """
        cupy = _cupy()
        with self._device:
            mine = cupy.cuda.get_current_stream()
            if mine.ptr != self._stream.ptr:
                self._stream.wait_event(recorded(cupy, mine))
        yield
        with self._device:
            if mine.ptr != self._stream.ptr:
                mine.wait_event(recorded(cupy, self._stream))


def recorded(cupy: Any, stream: Any) -> Any:
    """Return an event behind what is queued on a stream now."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event


def run_on(index: int, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
    """Return `steps`, run with the GPU as the current one and on the stream that is current now.

    Each step may be run by another thread, which has a current GPU and stream of its own.
    """
    cupy = _cupy()
    with cupy.cuda.Device(index):
        stream = stream_for_all_threads()
    return _run_on(cupy.cuda.Device(index), stream, steps)


def _run_on(
    device: Any, stream: Any, steps: Generator[Any, None, Any]
) -> Generator[Any, None, Any]:
    while True:
        try:
            with device, stream:
                request = next(steps)
        except StopIteration as stop:
            return stop.value
        yield request


def _cupy() -> Any:
    import cupy

    return cupy
