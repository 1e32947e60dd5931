"""Programs that use memory of the device, pinned and managed memory."""

import ctypes
import mmap

import cupy
import numpy as np
from calls import (
    HIP,
    MIB,
    RUBBISH,
    SOURCE,
    Hold,
    launch,
    pointer,
    read,
    read_int,
    refused,
    start,
)
from cupy.cuda import runtime

DEVICE_TO_HOST, HOST_TO_DEVICE = runtime.memcpyDeviceToHost, runtime.memcpyHostToDevice
ALREADY_REGISTERED, NOT_REGISTERED = 712, 713  # numbers of HIP


def fresh_memory_is_rubbish() -> None:
    """Neither short nor long allocations begin as zeros, also where memory was used before."""
    for nbytes in (64, 3 * MIB):
        for _ in range(3):
            address = runtime.malloc(nbytes)
            assert set(read(address, 64)) == {RUBBISH}
            assert set(read(address + nbytes - 32, 32)) == {RUBBISH}
            runtime.memset(address, 0, nbytes)
            assert set(read(address, nbytes)) == {0}
            runtime.free(address)


def fresh_memory_of_the_host_is_rubbish() -> None:
    """So is pinned and managed memory: a driver promises no zeros."""
    for make in (lambda: runtime.hostAlloc(5000, 0), lambda: runtime.mallocManaged(5000)):
        for _ in range(2):
            words = (ctypes.c_ubyte * 5000).from_address(make())
            assert set(words) == {RUBBISH}
            ctypes.memset(words, 0, 5000)


def freed_memory_changes() -> None:
    """A kernel that still reads freed memory of a block in use finds other bytes."""
    kept, freed = runtime.malloc(64), runtime.malloc(64)
    runtime.memset(freed, 1, 64)
    runtime.free(freed)
    launch("get", pointer(freed), pointer(kept))
    assert read_int(kept) == 0x5A5A5A5A


def copies_stay_in_allocations() -> None:
    """Past an end, freed, or in the gap between allocations: an error, no fault."""
    host = np.zeros(8192, np.uint8)
    address, other = runtime.malloc(4096), runtime.malloc(3 * MIB)
    kinds = (DEVICE_TO_HOST, runtime.memcpyDefault)
    wrong = [(address, 4097), (address + 4000, 97), (other + 3 * MIB, 1), (other + 3 * MIB - 1, 2)]
    freed = runtime.malloc(3 * MIB)
    runtime.free(freed)
    for at, nbytes in [*wrong, (freed, 1)]:
        for kind in kinds:
            with refused("hipErrorInvalidValue"):
                runtime.memcpy(host.ctypes.data, at, nbytes, kind)
        with refused("hipErrorInvalidValue"):
            runtime.memcpy(at, host.ctypes.data, nbytes, HOST_TO_DEVICE)
        with refused("hipErrorInvalidValue"):
            runtime.memset(at, 0, nbytes)
    runtime.memcpy(host.ctypes.data, address + 4000, 96, DEVICE_TO_HOST)
    assert set(host[:96]) == {RUBBISH}
    assert not host[96:].any()
    with refused("hipErrorInvalidValue"):
        runtime.memset(host.ctypes.data, 0, 1)
    with refused("hipErrorInvalidValue"):
        runtime.free(address + 8)
    with refused("hipErrorInvalidValue"):
        runtime.free(freed)


def directions_are_checked() -> None:
    """The direction of a copy has to be that of its pointers."""
    host = np.zeros(64, np.uint8)
    one, other = runtime.malloc(64), runtime.malloc(64)
    wrong = [
        (one, other, HOST_TO_DEVICE),
        (one, other, DEVICE_TO_HOST),
        (one, other, runtime.memcpyHostToHost),
        (host.ctypes.data, one, HOST_TO_DEVICE),
        (host.ctypes.data, one, runtime.memcpyDeviceToDevice),
        (one, host.ctypes.data, DEVICE_TO_HOST),
        (host.ctypes.data, host.ctypes.data, HOST_TO_DEVICE),
        (host.ctypes.data, host.ctypes.data, 7),
    ]
    for to, source, kind in wrong:
        with refused("hipErrorInvalidValue"):
            runtime.memcpy(to, source, 64, kind)
    runtime.memset(other, 3, 64)
    runtime.memcpy(one, other, 64, runtime.memcpyDeviceToDevice)
    assert set(read(one, 64)) == {3}
    runtime.memcpy(host.ctypes.data, one, 64, runtime.memcpyDefault)
    assert set(host) == {3}


def pinned_memory_is_read_late() -> None:
    """When the stream comes to the copy; pageable memory is read at once."""
    stream, hold = cupy.cuda.Stream(non_blocking=True), Hold()
    pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(4), np.int32, 1)
    pageable = np.array([1], np.int32)
    pinned[0] = 1
    late, at_once = runtime.malloc(4), runtime.malloc(4)
    hold.begin(stream)
    runtime.memcpyAsync(late, pinned.ctypes.data, 4, HOST_TO_DEVICE, stream.ptr)
    runtime.memcpyAsync(at_once, pageable.ctypes.data, 4, HOST_TO_DEVICE, stream.ptr)
    pinned[0] = pageable[0] = 2
    hold.end()
    stream.synchronize()
    assert (read_int(late), read_int(at_once)) == (2, 1)


def registered_memory_is_used_late() -> None:
    """As pinned memory is, both ways, as long as it is registered; then it is pageable again."""
    HIP.hipHostRegister.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    HIP.hipHostUnregister.argtypes = [ctypes.c_void_p]
    words = np.frombuffer(mmap.mmap(-1, 4096), np.int32)
    address, there = words.ctypes.data, runtime.malloc(4)
    stream, hold = cupy.cuda.Stream(non_blocking=True), Hold()

    def copy(word: int, kind: int) -> None:
        host = address + 4 * word
        to, source = (there, host) if kind == HOST_TO_DEVICE else (host, there)
        runtime.memcpyAsync(to, source, 4, kind, stream.ptr)

    assert HIP.hipHostRegister(address, 64, 0) == 0
    assert HIP.hipHostRegister(address + 32, 64, 0) == ALREADY_REGISTERED
    words[:2] = 1, 0
    hold.begin(stream)
    copy(0, HOST_TO_DEVICE)
    copy(1, DEVICE_TO_HOST)
    words[0] = 2
    assert words[1] == 0
    hold.end()
    stream.synchronize()
    assert words[1] == 2
    assert HIP.hipHostUnregister(address) == 0
    assert HIP.hipHostUnregister(address) == NOT_REGISTERED
    words[0] = 3
    hold = Hold()
    hold.begin(stream)
    copy(0, HOST_TO_DEVICE)
    words[0] = 4
    hold.end()
    copy(1, DEVICE_TO_HOST)
    assert words[1] == 3


def kernels_use_pinned_memory() -> None:
    """At the address that the host uses; the same for managed memory, copied in any direction."""
    for address in (runtime.hostAlloc(4, 0), runtime.mallocManaged(4)):
        word = ctypes.c_int.from_address(address)
        word.value = 5
        launch("add", pointer(address), np.int32(2))
        cupy.cuda.runtime.deviceSynchronize()
        assert word.value == 7
    there = runtime.malloc(4)
    for kind in (HOST_TO_DEVICE, runtime.memcpyDeviceToDevice, runtime.memcpyDefault):
        runtime.memcpy(there, address, 4, kind)
        assert read_int(there) == 7


def kinds_of_pointers() -> None:
    """HIP's numbers (CuPy's wrapper maps those of pinned memory as ROCm 5 had them)."""

    class Attributes(ctypes.Structure):
        _fields_ = [
            *((name, ctypes.c_int) for name in ("type", "device")),
            *((name, ctypes.c_void_p) for name in ("device_pointer", "host_pointer")),
            *((name, ctypes.c_int) for name in ("is_managed", "flags")),
        ]

    found = Attributes()
    host = np.zeros(1)
    made = [runtime.hostAlloc(8, 0), runtime.malloc(8), runtime.mallocManaged(8)]
    for kind, address in enumerate([host.ctypes.data, *made]):
        arguments = (ctypes.byref(found), ctypes.c_void_p(address))
        assert HIP.hipPointerGetAttributes(*arguments) == 0
        assert found.type == kind
        assert (found.host_pointer is None) == (kind in (0, 2))


def memory_ends() -> None:
    """PRETEND_MIB=16: more is out of memory, and what was freed can be had again."""
    assert runtime.memGetInfo() == (16 * MIB, 16 * MIB)
    with refused("hipErrorOutOfMemory"):
        runtime.malloc(17 * MIB)
    first = runtime.malloc(10 * MIB)
    assert runtime.memGetInfo() == (6 * MIB, 16 * MIB)
    with refused("hipErrorOutOfMemory"):
        runtime.malloc(7 * MIB)
    runtime.free(first)
    runtime.free(runtime.malloc(16 * MIB))
    try:
        cupy.empty(17 * MIB, cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError:
        return
    raise AssertionError("CuPy found more than there is")


def the_pool_gives_back() -> None:
    """CuPy's pool keeps freed blocks until it is told."""
    before, pool = runtime.memGetInfo()[0], cupy.get_default_memory_pool()
    array = cupy.zeros(4 * MIB, cupy.uint8)
    assert before - runtime.memGetInfo()[0] == pool.total_bytes() == 4 * MIB
    del array
    assert (pool.used_bytes(), pool.total_bytes()) == (0, 4 * MIB)
    pool.free_all_blocks()
    assert runtime.memGetInfo()[0] == before


def variables_of_modules() -> None:
    """The host copies them; kernels see that, and keep what they write."""
    module, found = cupy.RawModule(code=SOURCE), cupy.empty(3, cupy.int32)
    table = cupy.ndarray(3, cupy.int32, module.get_global("table"))
    factor = cupy.ndarray((), cupy.int32, module.get_global("factor"))
    assert (table.get().tolist(), int(factor)) == ([1, 2, 3], 10)
    for expected in ([10, 20, 30], [20, 30, 40]):
        module.get_function("look_up")((1,), (1,), (found,))
        assert found.get().tolist() == expected
    table[:] = cupy.arange(3, dtype=cupy.int32)
    factor.fill(2)
    module.get_function("look_up")((1,), (1,), (found,))
    assert (found.get().tolist(), table.get().tolist()) == ([0, 2, 4], [1, 2, 3])
    with refused("hipErrorNotFound"):
        module.get_global("unknown")
    with refused("hipErrorInvalidValue"):
        runtime.free(table.data.ptr)


def the_host_reads() -> None:
    """Ends by SIGSEGV."""
    address = runtime.malloc(64)
    print("before", flush=True)
    ctypes.string_at(address, 1)


def the_host_writes() -> None:
    """Ends by SIGSEGV."""
    array = cupy.zeros(4 * MIB, cupy.uint8)
    cupy.cuda.runtime.deviceSynchronize()
    print("before", flush=True)
    ctypes.memset(array.data.ptr, 0, 1)


if __name__ == "__main__":
    start(globals())
