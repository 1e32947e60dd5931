"""Programs that use streams and events."""

import ctypes
import threading
import time
from typing import Any

import cupy
import numpy as np
from calls import HIP, Hold, kernel, launch, pointer, read_int, refused, start
from cupy.cuda import Event, Stream, runtime

PATIENCE_S = 20


def is_done(stream: Any) -> bool:
    """Whether nothing is left to do on a stream."""
    return bool(stream.done)


def blocking_streams_and_the_default_one() -> None:
    """They wait for each other; non-blocking ones for neither."""
    blocking, free = Stream(), Stream(non_blocking=True)
    word, hold = runtime.malloc(4), Hold()
    for held, late in ((blocking, Stream.null), (Stream.null, blocking)):
        hold = Hold()
        hold.begin(held)
        with free:
            launch("set", pointer(word), np.int32(1))
        free.synchronize()
        with late:
            launch("set", pointer(word), np.int32(2))
        free.synchronize()
        assert not is_done(late)
        assert hold.ended == 0
        hold.end()
        late.synchronize()
        assert hold.ended == 1
        assert read_int(word) == 2


def each_thread_has_a_stream_of_its_own() -> None:
    """It is behind the same handle, and waits for the default stream, as that does for it."""
    hold, found = Hold(), []
    hold.begin(Stream.ptds)
    thread = threading.Thread(target=lambda: found.append(is_done(Stream.ptds)))
    thread.start()
    thread.join()
    assert found == [True]
    assert not is_done(Stream.ptds)
    event = Event()
    event.record(Stream.null)
    assert not event.done
    hold.end()
    event.synchronize()
    assert hold.ended == 1


def work_is_done_in_order() -> None:
    """Fills, kernels and host functions of one stream."""
    stream, found = Stream(non_blocking=True), []
    word = runtime.malloc(4)
    with stream:
        for i in range(50):
            runtime.memsetAsync(word, i, 4, stream.ptr)
            launch("add", pointer(word), np.int32(1))
            stream.launch_host_func(found.append, i)
    stream.synchronize()
    assert found == list(range(50))
    assert read_int(word) == 49 * 0x01010101 + 1


def events_order_streams() -> None:
    """A stream waits for an event's record of another; a record that comes later is not meant."""
    one, other, event = Stream(non_blocking=True), Stream(non_blocking=True), Event()
    word, hold = runtime.malloc(4), Hold()
    runtime.memset(word, 0, 4)
    runtime.deviceSynchronize()
    assert event.done  # never recorded
    hold.begin(one)
    event.record(one)
    assert not event.done
    other.wait_event(event)
    with other:
        launch("set", pointer(word), np.int32(1))
    assert not is_done(other)
    hold.end()
    other.synchronize()
    assert hold.ended == 1
    assert event.done
    again = Hold()
    again.begin(one)
    with other:  # not recorded again: nothing to wait for
        other.wait_event(event)
    other.synchronize()
    again.end()
    event.record(one)
    event.synchronize()
    assert again.ended == 1


def times_of_events() -> None:
    """The time between two records; none for events without timing, or before they are over."""
    stream, hold = Stream(non_blocking=True), Hold()
    first, last, untimed = Event(), Event(), Event(disable_timing=True)
    first.record(stream)
    first.synchronize()  # the stream may come to it late
    hold.begin(stream)
    last.record(stream)
    untimed.record(stream)
    with refused("hipErrorNotReady"):
        cupy.cuda.get_elapsed_time(first, last)
    time.sleep(0.05)
    hold.end()
    stream.synchronize()
    assert 50 <= cupy.cuda.get_elapsed_time(first, last) < 1000 * PATIENCE_S
    with refused("hipErrorInvalidHandle"):
        cupy.cuda.get_elapsed_time(first, untimed)
    with refused("hipErrorInvalidHandle"):
        cupy.cuda.get_elapsed_time(first, Event())


def destroyed_streams_finish() -> None:
    """What is queued is done, host functions of Python too, and the device waits for it."""
    word, hold, called = runtime.malloc(4), Hold(), threading.Event()
    runtime.memset(word, 0, 4)
    runtime.deviceSynchronize()  # neither the host nor the stream waits for a fill
    stream = Stream(non_blocking=True)
    hold.begin(stream)
    with stream:
        launch("set", pointer(word), np.int32(7))
    stream.launch_host_func(lambda _: called.set(), None)
    handle = stream.ptr
    del stream  # destroys it; does not wait
    assert hold.ended == 0
    with refused("hipErrorInvalidHandle"):
        runtime.streamSynchronize(handle)
    hold.end()
    assert called.wait(PATIENCE_S)
    runtime.deviceSynchronize()
    assert read_int(word) == 7


def free_waits() -> None:
    """Memory stays as long as work is queued, on any stream of the device."""
    word, hold, stream = runtime.malloc(4), Hold(), Stream(non_blocking=True)
    hold.begin(stream)
    with stream:
        launch("set", pointer(word), np.int32(7))
    free = threading.Thread(target=runtime.free, args=(word,))
    free.start()
    free.join(0.2)
    assert free.is_alive()
    hold.end()
    free.join(PATIENCE_S)
    assert not free.is_alive()
    assert is_done(stream)


def arguments_are_read_at_the_call() -> None:
    """A kernel that begins late has the arguments of its launch."""
    word, hold, stream = runtime.malloc(4), Hold(), Stream(non_blocking=True)
    function = kernel("set").kernel.ptr
    address, value = ctypes.c_void_p(word), ctypes.c_int(1)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(value))
    hold.begin(stream)
    sizes = [*[1] * 6, 0]
    handles = (ctypes.c_void_p(function), ctypes.c_void_p(stream.ptr))
    assert HIP.hipModuleLaunchKernel(handles[0], *sizes, handles[1], arguments, None) == 0
    value.value, address.value = 2, 0
    hold.end()
    stream.synchronize()
    assert read_int(word) == 1


def impossible_launches() -> None:
    """Too many threads, rows of blocks, shared memory. (CuPy leaves out a grid of nothing.)"""
    add, word = kernel("add"), runtime.malloc(4096)
    arguments = (pointer(word), np.int32(0))
    for grid, block, shared in (
        ((1,), (1025,), 0),
        ((1,), (32, 32, 2), 0),
        ((1, 65537), (1,), 0),
        ((1,), (1,), (64 << 10) + 1),
    ):
        with refused("hipErrorInvalidValue"):
            add(grid, block, arguments, shared_mem=shared)
    add((1,), (1024,), arguments, shared_mem=64 << 10)
    runtime.deviceSynchronize()


def wrong_handles() -> None:
    """Of events and streams that do not exist any more."""
    event, stream = runtime.eventCreate(), runtime.streamCreate()
    runtime.eventDestroy(event)
    runtime.streamDestroy(stream)
    for call, arguments in (
        (runtime.eventDestroy, (event,)),
        (runtime.eventRecord, (event, 0)),
        (lambda one: runtime.check_status(runtime.eventQuery(one)), (event,)),
        (runtime.eventSynchronize, (event,)),
        (runtime.streamWaitEvent, (0, event)),
        (runtime.streamDestroy, (stream,)),
        (lambda one: runtime.check_status(runtime.streamQuery(one)), (stream,)),
        (runtime.memsetAsync, (runtime.malloc(4), 0, 4, stream)),
    ):
        with refused("hipErrorInvalidHandle"):
            call(*arguments)


def work_is_late() -> None:
    """PRETEND_LATE_MS=50: who does not wait finds old bytes."""
    stream, word = Stream(non_blocking=True), runtime.malloc(4)
    runtime.memset(word, 0, 4)
    runtime.deviceSynchronize()
    began = time.monotonic()
    runtime.memsetAsync(word, 1, 4, stream.ptr)
    stream.synchronize()
    assert time.monotonic() - began >= 0.05


def many_streams() -> None:
    """PRETEND_LATE_MS=0-3: their work mixes, and each one's order stays."""
    streams, words = [Stream(non_blocking=True) for _ in range(8)], runtime.malloc(4 * 8)
    order: list[int] = []
    for step in range(5):
        for i, stream in enumerate(streams):
            with stream:
                launch("set", pointer(words + 4 * i), np.int32(step))
            stream.launch_host_func(order.append, i)
    runtime.deviceSynchronize()
    assert [read_int(words + 4 * i) for i in range(8)] == [4] * 8
    assert sorted(order) == sorted([*range(8)] * 5)
    assert order != [*range(8)] * 5


if __name__ == "__main__":
    start(globals())
