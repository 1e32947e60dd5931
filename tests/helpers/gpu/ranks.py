"""Communicators of ranks that have arrays on GPUs, and kernels that take their time.

Everything here is to be used on all ranks of a job alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.gpu.devices import device_of_rank, needs_gpus
from mpistrat.collectives.communicator import Communicator

__all__ = [
    "CARRIERS",
    "WaitingKernel",
    "carried_by",
    "communicator_on_gpus",
    "fill_late",
    "num_counted",
]

CARRIERS = ("staged", "peer_memory", "nccl")
"""What carries arrays; tests also know "one_shot": NCCL, and one kernel for short arrays."""

_LATE = r"""
extern "C" __global__ void fill_late(float* to, int count, float value) {
  for (volatile int i = 0; i < 10000000; ++i) {}
  for (int i = 0; i < count; ++i) to[i] = value;
}
extern "C" __global__ void wait_for_host(volatile int* flags) {
  for (long i = 0; i < 20000000000 && flags[0] == 0; ++i) {}
  flags[1] = flags[0];
}
"""


@contextlib.contextmanager
def communicator_on_gpus(
    carrier: str, device: int | None = None
) -> Iterator[tuple[Communicator, Any]]:
    """Yield a communicator of all ranks, and CuPy, with this rank's GPU as the current one.

    Parameters
    ----------
    carrier
        What MPISTRAT_GPU_CARRIER asks for, or "one_shot".
    device
        This rank's GPU; default: GPU 0 for all ranks, but one each for NCCL.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    is_apart = carrier in ("nccl", "one_shot")
    cupy = needs_gpus(world.size if is_apart else 1)

    own = (device_of_rank(world.rank) if is_apart else 0) if device is None else device
    with pytest.MonkeyPatch.context() as patch:
        for name, value in carried_by(carrier).items():
            patch.setenv(name, value)
        with cupy.cuda.Device(own), Communicator(world) as communicator:
            yield communicator, cupy


def carried_by(carrier: str) -> dict[str, str]:
    """Return the environment of programs whose arrays a carrier of CARRIERS, or one_shot, has."""
    if carrier == "one_shot":
        return {"MPISTRAT_GPU_CARRIER": "nccl", "MPISTRAT_GPU_ONE_SHOT": "on"}
    off = {} if carrier == "auto" else {"MPISTRAT_GPU_ONE_SHOT": "off"}
    return {"MPISTRAT_GPU_CARRIER": carrier, **off}


def _kernel(name: str) -> Any:
    import cupy

    return cupy.RawModule(code=_LATE).get_function(name)


def fill_late(array: Any, value: float) -> None:
    """Queue a kernel on the current stream that fills an array of float32 after some time."""
    import numpy as np

    _kernel("fill_late")((1,), (1,), (array, np.int32(array.size), np.float32(value)))


class WaitingKernel:
    """A kernel on a stream of its own or another, which runs until :meth:`end`, or for long."""

    def __init__(self, stream: Any = None) -> None:
        import cupy
        import numpy as np

        memory = cupy.cuda.alloc_pinned_memory(8)
        self._flags = np.frombuffer(memory, np.int32, 2)
        self._flags[:] = 0
        self._stream = cupy.cuda.Stream(non_blocking=True) if stream is None else stream
        with self._stream:
            _kernel("wait_for_host")((1,), (1,), (np.uint64(memory.ptr),))

    @property
    def is_over(self) -> bool:
        """Whether it runs no more."""
        return bool(self._stream.done)

    def end(self) -> bool:
        """Let it end; return whether it was still running."""
        self._flags[0] = 1
        self._stream.synchronize()
        return bool(self._flags[1] == 1)


def num_counted(comm: Communicator, cupy: Any) -> int:
    """Return of how many ranks, all of which are on one GPU, its free memory is told.

    A real one tells what all processes leave, the stand-in what this one does.
    """
    nbytes, runtime = 64 << 20, cupy.cuda.runtime
    comm.barrier()
    before = runtime.memGetInfo()[0]
    comm.barrier()
    memory = runtime.malloc(nbytes)
    comm.barrier()
    used = int(before - runtime.memGetInfo()[0])
    comm.barrier()
    runtime.free(memory)
    comm.barrier()
    return max(1, round(used / nbytes))
