"""Programs with wrong kernels, lost devices, and processes that fork or end."""

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from calls import MIB, launch, pointer, read_int, refused, start
from cupy.cuda import compiler, driver, function, runtime

Calls = dict[str, Callable[[], Any]]

BOUNDED = r"""
extern "C" __global__ void __launch_bounds__(64, 2) at_most_64(int* at) { atomicAdd(at, 1); }
template <int kMost>
__global__ void __launch_bounds__(kMost) at_most(int* at) { atomicAdd(at, 1); }
"""


def device_processes() -> list[int]:
    """Return the numbers of this process's children."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(number) for number in text.split()]


def calls_for_a_device() -> Calls:
    """Return calls that work, each of which a lost device has to refuse."""
    word, host = runtime.malloc(4), np.zeros(1, np.int32)
    pinned, big = runtime.hostAlloc(4, 0), runtime.malloc(3 * MIB)
    stream, event = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event()
    event.record(stream)
    to_host = (host.ctypes.data, word, 4, runtime.memcpyDeviceToHost)
    launch("set", pointer(word), np.int32(1))
    return {
        "malloc": lambda: runtime.malloc(4),
        "hostAlloc": lambda: runtime.hostAlloc(4, 0),
        "memcpy": lambda: runtime.memcpy(*to_host),
        "memcpyAsync": lambda: runtime.memcpyAsync(*to_host, stream.ptr),
        "memset": lambda: runtime.memset(word, 0, 4),
        "launch": lambda: launch("set", pointer(word), np.int32(1)),
        "launchHostFunc": lambda: stream.launch_host_func(print, None),
        "streamSynchronize": stream.synchronize,
        "streamQuery": lambda: runtime.check_status(runtime.streamQuery(stream.ptr)),
        "streamCreate": runtime.streamCreate,
        "streamWaitEvent": lambda: stream.wait_event(event),
        "eventCreate": runtime.eventCreate,
        "eventRecord": lambda: event.record(stream),
        "eventQuery": lambda: runtime.check_status(runtime.eventQuery(event.ptr)),
        "eventSynchronize": event.synchronize,
        "memGetInfo": runtime.memGetInfo,
        "ipcGetMemHandle": lambda: runtime.ipcGetMemHandle(word),
        "freeHost": lambda: runtime.freeHost(pinned),
        "free": lambda: runtime.free(big),
        "deviceSynchronize": runtime.deviceSynchronize,
    }


def expect_refusals(calls: Calls, error: str) -> None:
    """All calls have to fail with an error, twice: it stays."""
    for _ in range(2):
        for name, call in calls.items():
            if name in ("free", "freeHost") and _:
                continue  # it is known no more
            try:
                with refused(error):
                    call()
            except Exception as wrong:
                raise AssertionError(f"{name} should raise {error}") from wrong


def expect_fault(error: str, name: str, *arguments: Any, block: int = 1) -> None:
    """Launch a kernel that fails; the launch may say so already."""
    with refused(error):
        launch(name, *arguments, block=block)
        runtime.deviceSynchronize()


def past_an_end() -> None:
    """A kernel that writes past an end is noticed, and no call works after it."""
    calls, address = calls_for_a_device(), runtime.malloc(3 * MIB)
    runtime.deviceSynchronize()
    expect_fault("hipErrorIllegalAddress", "set", pointer(address + 3 * MIB), np.int32(1))
    expect_refusals(calls, "hipErrorIllegalAddress")


def freed_memory() -> None:
    """So is one that uses memory after it was freed."""
    address = runtime.malloc(3 * MIB)
    runtime.free(address)
    expect_fault("hipErrorIllegalAddress", "set", pointer(address), np.int32(1))


def memory_of_the_host() -> None:
    """Only pinned memory can be used by kernels."""
    host = np.zeros(1, np.int32)
    expect_fault("hipErrorIllegalAddress", "set", pointer(host.ctypes.data), np.int32(1))
    assert host[0] == 0


def memory_of_another_device() -> None:
    """Without peer access; the other device goes on (PRETEND_GPUS=2)."""
    with cupy.cuda.Device(1):
        word = runtime.malloc(4)
        runtime.memset(word, 0, 4)
        runtime.deviceSynchronize()
    expect_fault("hipErrorIllegalAddress", "set", pointer(word), np.int32(1))
    with cupy.cuda.Device(1):
        launch("add", pointer(word), np.int32(3))
        assert read_int(word) == 3
        runtime.free(word)


def peer_access_ends() -> None:
    """It holds for memory of before and after; disabled, it faults again (PRETEND_GPUS=2)."""
    with cupy.cuda.Device(1):
        before = runtime.malloc(4)
    runtime.deviceEnablePeerAccess(1)
    with refused("hipErrorPeerAccessAlreadyEnabled"):
        runtime.deviceEnablePeerAccess(1)
    with cupy.cuda.Device(1):
        after = runtime.malloc(3 * MIB)
    for word in (before, after):
        launch("set", pointer(word), np.int32(4))
        runtime.deviceSynchronize()
        with cupy.cuda.Device(1):
            assert read_int(word) == 4
    runtime.deviceDisablePeerAccess(1)
    expect_fault("hipErrorIllegalAddress", "set", pointer(before), np.int32(1))


def too_many_threads() -> None:
    """More than __launch_bounds__ allows; of a template, too."""
    module = cupy.RawModule(code=BOUNDED, name_expressions=["at_most<32>"])
    word = cupy.zeros(1, cupy.int32)
    for name in ("at_most_64", "at_most<32>"):
        module.get_function(name)((1,), (32,), (word,))
    assert int(word[0]) == 64
    with refused("hipErrorLaunchFailure"):
        module.get_function("at_most<32>")((1,), (33,), (word,))
        runtime.deviceSynchronize()


def different_barriers() -> None:
    """Threads of a block that meet at two places end the kernel, not this process."""
    kernel_word = runtime.malloc(4)
    expect_fault("hipErrorLaunchFailure", "meet_at_two_places", pointer(kernel_word), block=2)


def lost() -> None:
    """PRETEND_LOST=0:3: the fourth piece of work finds no device."""
    calls, word = calls_for_a_device(), runtime.malloc(4)  # one piece of work
    runtime.deviceSynchronize()
    for _ in range(2):
        runtime.memset(word, 0, 4)
        runtime.deviceSynchronize()
    with refused("hipErrorLaunchFailure"):
        runtime.memset(word, 0, 4)  # which may say so already
        runtime.deviceSynchronize()
    expect_refusals(calls, "hipErrorLaunchFailure")


def forks() -> None:
    """In a forked child no call works, and what it ends with leaves the parent's memory alone."""
    calls, stream = calls_for_a_device(), cupy.cuda.Stream(non_blocking=True)
    array = cupy.full(1 << 20, 3, cupy.int32)
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(20)
            expect_refusals(calls, "hipErrorNotInitialized")
            del array, stream  # CuPy frees and destroys them, and prints the errors
            cupy.get_default_memory_pool().free_all_blocks()
            code = 0
        except Exception:  # noqa: BLE001 -- the parent looks at the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert int(array.sum()) == 3 << 20
    stream.synchronize()
    for call in calls.values():
        runtime.deviceSynchronize()
        call()


def signals_are_for_this_process() -> None:
    """The device's process ends by none that a job's processes are sent together."""
    word = runtime.malloc(4)
    (process,) = device_processes()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(process, number)
    time.sleep(0.1)
    launch("set", pointer(word), np.int32(1))
    assert read_int(word) == 1


def blocked_signals() -> None:
    """Those of the thread that starts a device are not the device's: its faults are reported."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGSEGV, signal.SIGBUS})
    host = np.zeros(1, np.int32)
    expect_fault("hipErrorIllegalAddress", "set", pointer(host.ctypes.data), np.int32(1))


def no_core_file() -> None:
    """A device that ends by a signal leaves none, whatever this process may do."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    runtime.free(runtime.malloc(4))
    (process,) = device_processes()
    (line,) = (
        line
        for line in Path(f"/proc/{process}/limits").read_text().splitlines()
        if line.startswith("Max core file size")
    )
    assert line.split()[4:6] == ["0", "0"]


def unloaded_modules() -> None:
    """They leave no file open in the device's process, and those that stay go on."""
    word = runtime.malloc(4)
    launch("set", pointer(word), np.int32(1))
    (process,) = device_processes()
    files = Path(f"/proc/{process}/fd")
    before = len(list(files.iterdir()))
    for number in range(5):
        source = f'extern "C" __global__ void kernel(int* at) {{ at[0] = {number}; }}'
        image = compiler.compile_using_nvrtc(source)[0]
        module = function.Module()
        module.load(image)
        module.get_function("kernel")((1,), (1,), (pointer(word),))
        assert read_int(word) == number
        assert len(list(files.iterdir())) == before + 1
        driver.moduleUnload(module.ptr)
        module.ptr = 0
        assert len(list(files.iterdir())) == before
    launch("add", pointer(word), np.int32(3))
    assert read_int(word) == 7


def waits_to_be_killed() -> None:
    """Never ends: the test kills it, while a kernel runs."""
    flag = runtime.hostAlloc(4, 0)
    np.frombuffer((np.ctypeslib.ctypes.c_char * 4).from_address(flag), np.int32)[0] = 0
    launch("hold", pointer(flag), pointer(0))
    print("devices", *device_processes(), flush=True)
    time.sleep(60)


def missing_function() -> None:
    """Graphs do not exist here."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with refused("hipErrorNotSupported"):
        stream.begin_capture()


if __name__ == "__main__":
    start(globals())
