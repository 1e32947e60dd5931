"""Queue copies between GPUs and slots of the host's memory."""

from __future__ import annotations

from typing import Any

from mpistrat.collectives.backends.gpu.short_arrays.host_slot import HostSlot

__all__ = ["copy_down", "copy_up_at_once", "copy_up_in_rows"]


def copy_down(slot: HostSlot, there: int, nbytes: int, stream: Any) -> None:
    """Queue a copy from a GPU to the beginning of a slot, whose event is then its end."""
    runtime, queue = slot.runtime, stream.ptr
    slot.note(stream)
    try:
        runtime.memcpyAsync(slot.down_at, there, nbytes, runtime.memcpyDeviceToHost, queue)
    finally:  # an interrupt may come in between
        runtime.eventRecord(slot.event_at, queue)


def copy_up_at_once(slot: HostSlot, there: int, at: int, nbytes: int, stream: Any) -> None:
    """Queue a copy to a GPU from an address in a slot, whose event is then its end."""
    runtime, queue = slot.runtime, stream.ptr
    try:
        runtime.memcpyAsync(there, at, nbytes, runtime.memcpyHostToDevice, queue)
    finally:
        runtime.eventRecord(slot.event_at, queue)


def copy_up_in_rows(slot: HostSlot, there: int, at: int, nbytes: int, stream: Any) -> None:
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
