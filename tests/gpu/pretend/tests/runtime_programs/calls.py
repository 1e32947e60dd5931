"""Helpers of the programs: kernels, one that holds up a stream, and calls that must fail."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np
from cupy.cuda import driver, runtime

HIP = ctypes.CDLL("libamdhip64.so.7")
MIB = 1 << 20
RUBBISH = 0xA5

SOURCE = r"""
extern "C" __global__ void set(int* at, int value) { at[0] = value; }
extern "C" __global__ void get(const int* at, int* found) { found[0] = at[0]; }
extern "C" __global__ void add(int* at, int value) {
  at[blockIdx.x * blockDim.x + threadIdx.x] += value;
}
// Until the host sets the flag, but not for ever.
extern "C" __global__ void hold(const int* flag, int* ended) {
  for (long i = 0; i < 20000000000 && !*(const volatile int*)flag; ++i) {}
  if (ended) ended[0] += 1;
}
extern "C" __global__ void meet_at_two_places(int* at) {
  if (threadIdx.x) {
    __syncthreads();
    at[0] = 1;
  } else {
    __syncthreads();
    at[0] = 2;
  }
}
__device__ int table[3] = {1, 2, 3};
__constant__ int factor = 10;
extern "C" __global__ void look_up(int* found) {
  for (int i = 0; i < 3; ++i) found[i] = factor * table[i]++;
}
// How many kernels are here at a time, looked at for a while.
extern "C" __global__ void count_together(int* inside, int* most) {
  atomicAdd(inside, 1);
  int found = 1;
  for (long i = 0; i < 100000000 && found < 2; ++i) {
    const int now = *(volatile int*)inside;
    found = now > found ? now : found;
  }
  most[0] = found;
  atomicSub(inside, 1);
}
"""


def kernel(name: str) -> Any:
    """Return a kernel of SOURCE, for the current device."""
    return cupy.RawModule(code=SOURCE).get_function(name)


def launch(name: str, *arguments: Any, grid: int = 1, block: int = 1) -> None:
    """Launch a kernel on the current stream; pointers are whole numbers of NumPy's uint64."""
    kernel(name)((grid,), (block,), arguments)


def pointer(address: int) -> np.uint64:
    """Return an address as an argument of a kernel."""
    return np.uint64(address)


@contextmanager
def refused(error: str) -> Iterator[None]:
    """Expect that HIP's error comes out of a call.

    Raises
    ------
    AssertionError
        None comes.
    RuntimeError
        Another one comes.
    """
    try:
        yield
    except (runtime.CUDARuntimeError, driver.CUDADriverError) as found:
        if error not in str(found):
            raise RuntimeError(f"expected {error}") from found
        return
    raise AssertionError(f"expected {error}, and nothing was raised")


class Hold:
    """Holds up a stream by a kernel that waits for the host; ``end`` lets it go on."""

    def __init__(self) -> None:
        self._address = runtime.hostAlloc(8, 0)
        self._words = (ctypes.c_int * 2).from_address(self._address)
        self._words[0] = self._words[1] = 0
        kernel("hold")  # compiled and loaded before it is needed

    def begin(self, stream: Any) -> None:
        with stream:
            launch("hold", pointer(self._address), pointer(self._address + 4))

    def end(self) -> None:
        self._words[0] = 1

    @property
    def ended(self) -> int:
        """How many streams went on."""
        return self._words[1]


def read(address: int, nbytes: int) -> bytes:
    """Return bytes of a device's memory."""
    found = np.zeros(nbytes, np.uint8)
    runtime.memcpy(found.ctypes.data, address, nbytes, runtime.memcpyDeviceToHost)
    return found.tobytes()


def read_int(address: int) -> int:
    """Return a number of 32 bits in a device's memory."""
    return int(np.frombuffer(read(address, 4), np.int32)[0])


def start(functions: dict[str, Callable[[], None]]) -> None:
    """Run the functions that the command line names."""
    for name in sys.argv[1:]:
        functions[name]()
        print(f"{name} is done", flush=True)
