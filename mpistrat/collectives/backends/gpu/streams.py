"""One stream a communicator and GPU for transfers, ordered with the caller's by events.

Nothing here waits for a whole device: work that the caller has queued on the current stream before
a transfer is done before it, and what the caller queues after it sees its result.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mpistrat.collectives.backends.base import Late, LateRequest, Request, Steps

__all__ = ["DONE", "EventRequest", "TransferStream", "TransferStreams"]

DONE, _NOT_READY = 0, 600  # of CUDA and of HIP


class EventRequest(LateRequest):
    """A request that is complete once the work before an event is done."""

    __slots__ = ("_event",)

    def __init__(self, event: Any) -> None:
        self._event = event

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Tell whether the event has happened; raise what went wrong on the GPU before it."""
        import cupy

        runtime = cupy.cuda.runtime
        status = runtime.eventQuery(self._event.ptr)
        if status in (DONE, _NOT_READY):
            return bool(status == DONE)
        raise runtime.CUDARuntimeError(status)  # `event.done` says no more than False

    def late(self) -> Late:
        """See `LateRequest.late`; a GPU does not tell what it is at."""
        return Late("the GPU of this rank has not ended what was queued on it before", ())


class TransferStream:
    """The stream on which one GPU copies and reduces for a communicator.

    Parameters
    ----------
    device
        Index of the GPU.

    Attributes
    ----------
    stream
        CuPy's object.
    """

    def __init__(self, device: int) -> None:
        import cupy

        self._cuda, self._device = cupy.cuda, cupy.cuda.Device(device)
        with self._device:
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self._order = self._cuda.Event(disable_timing=True)  # waited for where it is recorded

    def run(self, steps: Steps) -> Steps:
        """Return `steps` between what the caller has queued, and what it will queue. **Local.**

        Every step begins with this stream as the current one.
        """
        caller = self._cuda.get_current_stream()
        self.follow()
        while True:
            try:
                with self.stream:
                    request = next(steps)
            except StopIteration as stop:
                self._put_behind(caller, self.stream)
                return stop.value
            except BaseException:
                # What is under way may still write to memory that the caller frees now, and uses
                # again on its own stream. A GPU that is lost writes no more.
                with suppress(self._cuda.runtime.CUDARuntimeError):
                    self._put_behind(caller, self.stream)
                raise
            yield request

    def follow(self) -> None:
        """Begin nothing more on this stream before what is queued on the current one is done."""
        self._put_behind(self.stream, self._cuda.get_current_stream())

    def _put_behind(self, later: Any, earlier: Any) -> None:
        with self._device:  # another may be the current one, when a communicator is closed
            self._order.record(earlier)
            later.wait_event(self._order)

    def done(self) -> Request:
        """Return a request for the end of all that is queued on this stream now."""
        return EventRequest(self._record(self.stream))

    def record(self) -> Any:
        """Return an event that happens once all that is queued on this stream now is done."""
        return self._record(self.stream)

    def _record(self, stream: Any) -> Any:
        with self._device:
            event = self._cuda.Event(disable_timing=True)
            event.record(stream)
        return event


class TransferStreams:
    """The streams of one communicator, one for each GPU that its calls bring arrays of.

    Those of two communicators are apart: kernels that wait for other ranks, queued in one order
    on this rank and in another one on the next, would wait for each other for ever on one stream.
    No stream is destroyed: CuPy keeps freed memory by its stream's address, which another stream
    could have next.
    """

    def __init__(self) -> None:
        self._streams: dict[int, TransferStream] = {}

    def of(self, device: int) -> TransferStream:
        """Return the stream of a GPU."""
        if device not in self._streams:
            free = _free.setdefault(device, [])
            self._streams[device] = free.pop() if free else TransferStream(device)
        return self._streams[device]

    def give_back(self) -> None:
        """Let later communicators use the streams, which have nothing left to do."""
        while self._streams:
            device, stream = self._streams.popitem()
            _free.setdefault(device, []).append(stream)


_free: dict[int, list[TransferStream]] = {}
