"""Programs of processes that share memory and events by handles, and a device.

The child is started anew (multiprocessing's "spawn"), and does what the parent tells it.
"""

import contextlib
import ctypes
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import cupy
import numpy as np
from calls import HIP, MIB, Hold, kernel, launch, pointer, read, read_int, refused, start
from cupy.cuda import runtime

PATIENCE_S = 30
DISABLE_TIMING, INTERPROCESS = 2, 4


class IpcEventHandle(ctypes.Structure):
    """The type hipIpcEventHandle_t, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def serve(function: Callable[..., Any], pipe: Connection) -> None:
    """Run a function of the child; tell the parent what went wrong, or None."""
    try:
        function(pipe)
        pipe.send(None)
    except Exception:  # noqa: BLE001 -- the parent raises it
        pipe.send(traceback.format_exc())


@contextlib.contextmanager
def child(function: Callable[[Connection], None]) -> Iterator[Connection]:
    """Run a function in another process meanwhile; what it sends comes out of the pipe."""
    pipe, other = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=serve, args=(function, other), daemon=True)
    process.start()
    other.close()
    yield pipe
    problem = receive(pipe)
    assert problem is None, problem
    process.join(PATIENCE_S)
    assert process.exitcode == 0


def receive(pipe: Connection) -> Any:
    """Return what the other process sends.

    Raises
    ------
    TimeoutError
        It sends nothing in time.
    """
    if not pipe.poll(PATIENCE_S):
        raise TimeoutError("the other process sends nothing")
    return pipe.recv()


def use_memory(pipe: Connection) -> None:
    """Open the parent's memory twice, read it and change it."""
    handle, gone = receive(pipe), receive(pipe)
    first, again = runtime.ipcOpenMemHandle(handle), runtime.ipcOpenMemHandle(handle)
    assert set(read(first, 3 * MIB)) == {7}
    with refused("hipErrorInvalidValue"):
        read(first, 3 * MIB + 1)
    with refused("hipErrorInvalidValue"):
        runtime.free(first)
    with refused("hipErrorInvalidValue"):  # a handle is for the memory's own process to give
        runtime.ipcGetMemHandle(first)
    launch("set", pointer(again), np.int32(42))
    runtime.ipcCloseMemHandle(again)
    assert read_int(first) == 42
    runtime.ipcCloseMemHandle(first)
    for one in (first, again):
        with refused("hipErrorInvalidValue"):
            runtime.ipcCloseMemHandle(one)
    with refused("hipErrorMapFailed"):
        runtime.ipcOpenMemHandle(gone)
    with refused("hipErrorInvalidValue"):
        runtime.ipcOpenMemHandle(b"\1" * 64)


def memory_of_another_process() -> None:
    """Its handle is opened there, as often as wanted, and not here."""
    shared, freed = runtime.malloc(3 * MIB), runtime.malloc(3 * MIB)
    runtime.memset(shared, 7, 3 * MIB)
    runtime.deviceSynchronize()
    handle, gone = runtime.ipcGetMemHandle(shared), runtime.ipcGetMemHandle(freed)
    runtime.free(freed)
    with refused("hipErrorInvalidContext"):
        runtime.ipcOpenMemHandle(handle)
    for address in (runtime.hostAlloc(8, 0), runtime.mallocManaged(8)):
        with refused("hipErrorInvalidValue"):
            runtime.ipcGetMemHandle(address)
    with child(use_memory) as pipe:
        pipe.send(handle)
        pipe.send(gone)
    assert read_int(shared) == 42


def use_block(pipe: Connection) -> None:
    """Find the parent's words by their offsets in the block that they share."""
    handle, offsets = receive(pipe), receive(pipe)
    base = runtime.ipcOpenMemHandle(handle)
    assert [read_int(base + offset) for offset in offsets] == [1, 2, 3]
    with refused("hipErrorInvalidValue"):
        read(base, 2 * MIB + 1)
    runtime.ipcCloseMemHandle(base)


def short_allocations_share_a_handle() -> None:
    """They lie in one block of 2 MiB; long ones have handles of their own."""
    words = [runtime.malloc(4) for _ in range(3)]
    for i, word in enumerate(words):
        launch("set", pointer(word), np.int32(i + 1))
    runtime.deviceSynchronize()
    handle, *others = [runtime.ipcGetMemHandle(word) for word in words]
    assert others == [handle, handle]
    # Handles are of allocations, wherever in them a pointer leads.
    assert runtime.ipcGetMemHandle(words[0] + 2) == handle
    long = [runtime.ipcGetMemHandle(runtime.malloc(MIB)) for _ in range(2)]
    assert len({handle, *long}) == 3
    with child(use_block) as pipe:
        pipe.send(handle)
        pipe.send([word - words[0] for word in words])


def wait_for_event(pipe: Connection) -> None:
    """Let a stream wait for the parent's event, and tell when it went on."""
    handle = IpcEventHandle.from_buffer_copy(receive(pipe))
    word = runtime.ipcOpenMemHandle(receive(pipe))
    event = ctypes.c_void_p()
    assert HIP.hipIpcOpenEventHandle(ctypes.byref(event), handle) == 0
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.wait_event(cupy.cuda.Event(disable_timing=True))  # never recorded
    assert HIP.hipStreamWaitEvent(ctypes.c_void_p(stream.ptr), event, 0) == 0
    with stream:
        launch("add", pointer(word), np.int32(1))
    assert not stream.done
    assert HIP.hipEventQuery(event) == 600  # hipErrorNotReady
    pipe.send("waiting")
    stream.synchronize()
    assert HIP.hipEventSynchronize(event) == 0
    assert HIP.hipEventDestroy(event) == 0
    assert read_int(word) == 11
    runtime.ipcCloseMemHandle(word)


def events_of_another_process() -> None:
    """A stream there waits for what is recorded here (CuPy has these for CUDA only)."""
    event, handle = ctypes.c_void_p(), IpcEventHandle()
    create = HIP.hipEventCreateWithFlags
    assert create(ctypes.byref(event), INTERPROCESS) == 1  # not with timing
    assert create(ctypes.byref(event), INTERPROCESS | DISABLE_TIMING) == 0
    assert HIP.hipIpcGetEventHandle(ctypes.byref(handle), event) == 0
    own = ctypes.c_void_p()
    assert HIP.hipIpcOpenEventHandle(ctypes.byref(own), handle) == 201  # hipErrorInvalidContext
    stream, hold, word = cupy.cuda.Stream(non_blocking=True), Hold(), runtime.malloc(3 * MIB)
    hold.begin(stream)
    with stream:
        launch("set", pointer(word), np.int32(10))
    assert HIP.hipEventRecord(event, ctypes.c_void_p(stream.ptr)) == 0
    with child(wait_for_event) as pipe:
        pipe.send(bytes(handle))
        pipe.send(runtime.ipcGetMemHandle(word))
        assert receive(pipe) == "waiting"
        hold.end()


def records_end_in_any_order() -> None:
    """A stream waits for the last record at the time of the call, whatever ends before it."""
    event, hold = ctypes.c_void_p(), Hold()
    word, found = runtime.malloc(4), runtime.malloc(4)
    kernel("get")
    flags = INTERPROCESS | DISABLE_TIMING
    assert HIP.hipEventCreateWithFlags(ctypes.byref(event), flags) == 0
    slow, quick, waits = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
    runtime.memset(word, 0, 4)
    runtime.deviceSynchronize()
    hold.begin(slow)
    with slow:
        launch("add", pointer(word), np.int32(5))
    assert HIP.hipEventRecord(event, ctypes.c_void_p(slow.ptr)) == 0
    assert HIP.hipStreamWaitEvent(ctypes.c_void_p(waits.ptr), event, 0) == 0
    with waits:
        launch("get", pointer(word), pointer(found))
    for _ in range(200):
        assert HIP.hipEventRecord(event, ctypes.c_void_p(quick.ptr)) == 0
        quick.synchronize()
    assert HIP.hipEventQuery(event) == 0  # the last record is over
    assert not waits.done
    hold.end()
    waits.synchronize()
    assert read_int(found) == 5
    for _ in range(300):  # more than an event keeps apart at a time
        assert HIP.hipEventRecord(event, ctypes.c_void_p(quick.ptr)) == 0
    assert HIP.hipEventSynchronize(event) == 0


def run_kernel(pipe: Connection) -> None:
    """Run the kernel that counts, when the parent says so."""
    inside, most = runtime.ipcOpenMemHandle(receive(pipe)), runtime.malloc(4)
    kernel("count_together")
    pipe.send("ready")
    assert receive(pipe) == "go"
    launch("count_together", pointer(inside), pointer(most))
    pipe.send(read_int(most))
    runtime.ipcCloseMemHandle(inside)


def _most_kernels() -> int:
    inside, most = runtime.malloc(3 * MIB), runtime.malloc(4)
    runtime.memset(inside, 0, 4)
    runtime.deviceSynchronize()
    kernel("count_together")
    with child(run_kernel) as pipe:
        pipe.send(runtime.ipcGetMemHandle(inside))
        assert receive(pipe) == "ready"
        pipe.send("go")
        launch("count_together", pointer(inside), pointer(most))
        return max(receive(pipe), read_int(most))


def kernels_overlap() -> None:
    """Those of two processes run at a time."""
    assert _most_kernels() == 2


def kernels_never_overlap() -> None:
    """PRETEND_EXCLUSIVE=1: as on a GPU without MPS."""
    assert _most_kernels() == 1


def kernels_of_one_process_overlap() -> None:
    """PRETEND_EXCLUSIVE=1: those of two streams of one process do."""
    inside, most = runtime.malloc(4), runtime.malloc(8)
    runtime.memset(inside, 0, 4)
    runtime.memset(most, 0, 8)
    kernel("count_together")
    runtime.deviceSynchronize()
    for i in range(2):
        with cupy.cuda.Stream(non_blocking=True):
            launch("count_together", pointer(inside), pointer(most + 4 * i))
    runtime.deviceSynchronize()
    assert max(read_int(most), read_int(most + 4)) == 2


def tell_bus_id(pipe: Connection) -> None:
    """Say which GPU this process has."""
    pipe.send(runtime.deviceGetPCIBusId(0))


def _bus_ids() -> tuple[str, str]:
    with child(tell_bus_id) as pipe:
        return runtime.deviceGetPCIBusId(0), receive(pipe)


def one_gpu_for_all() -> None:
    """Processes share the physical devices."""
    own, other = _bus_ids()
    assert own == other == "0000:01:00.0"


def a_gpu_for_each() -> None:
    """PRETEND_SEPARATE=1: they do not."""
    own, other = _bus_ids()
    assert own != other


def open_in_vain(pipe: Connection) -> None:
    """The parent's device is another one, without access to it."""
    handle = receive(pipe)
    with refused("hipErrorPeerAccessUnsupported"):
        runtime.ipcOpenMemHandle(handle)


def no_access_to_another_gpu() -> None:
    """PRETEND_SEPARATE=1 with PRETEND_NO_PEERS=1: handles cannot be opened."""
    with child(open_in_vain) as pipe:
        pipe.send(runtime.ipcGetMemHandle(runtime.malloc(8)))


if __name__ == "__main__":
    start(globals())
