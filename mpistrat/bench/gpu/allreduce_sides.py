"""The sides of an all-reduce on GPUs; each call returns when the result is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.gpu.comparison import copy_side
from mpistrat.bench.gpu.ranks import GpuSession
from mpistrat.bench.harness import expected_results
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.sides import Label, Side

__all__ = [
    "REGISTERED",
    "GpuBuffers",
    "carrier_sides",
    "copy_of_all",
    "peer_sides",
    "registered_side",
]

REGISTERED = "auto, registered"
"""The name of the side whose arrays the user has from ``communicator.empty(device=)``."""


class GpuBuffers:
    """A task's input and result on this rank's GPU.

    Attributes
    ----------
    task
        An all-reduce.
    send, recv
        Arrays of CuPy.
    """

    def __init__(self, task: Task, send: Any, recv: Any) -> None:
        self.task = task
        self.send, self.recv = send, recv

    @classmethod
    def of_the_pool(cls, task: Task) -> GpuBuffers:
        """Return buffers in memory of CuPy."""
        import cupy

        send = cupy.asarray(expected_results.inputs(task))
        return cls(task, send, cupy.empty_like(send))

    @classmethod
    def registered(cls, task: Task, communicator: Communicator) -> GpuBuffers:
        """Return buffers in memory that all ranks have mapped. **Collective.**"""
        import cupy

        mine = cupy.asarray(expected_results.inputs(task))
        device = f"GPU:{mine.device.id}"
        send, recv = (communicator.empty(mine.shape, mine.dtype, device=device) for _ in range(2))
        send[...] = mine
        return cls(task, send, recv)

    def is_right(self, call: Callable[[], object]) -> bool:
        """Spoil the result, call a side and compare. **Collective** as `call` is."""
        self.recv.fill(np.nan)
        call()
        want = expected_results.expected(self.task)
        return want is not None and np.array_equal(self.recv.get(), want)


def carrier_sides(carriers: Mapping[str, Communicator], buffers: GpuBuffers) -> list[Side]:
    """Return a side for each of mpistrat's carriers."""
    return [_side(name, name, communicator, buffers) for name, communicator in carriers.items()]


def registered_side(communicator: Communicator, task: Task) -> Side:
    """Return the side of mpistrat's choice with registered memory. **Collective.**"""
    buffers = GpuBuffers.registered(task, communicator)
    return _side(REGISTERED, "auto", communicator, buffers)


def _side(text: str, carrier: str, communicator: Communicator, buffers: GpuBuffers) -> Side:
    call = partial(communicator.allreduce, buffers.send, "sum", out=buffers.recv)
    label = Label(text, "backend", carrier, "allreduce", is_base=text == "staged")
    return Side(label, call, partial(buffers.is_right, call))


def peer_sides(session: GpuSession, buffers: GpuBuffers) -> list[Side]:
    """Return what a user would do without mpistrat: MPI over the host, and NCCL by itself."""
    calls: dict[str, Callable[[], None]] = {}
    if session.world is not None:
        calls["mpi4py over the host"] = _over_the_host(session.world, buffers)
    if session.nccl is not None:
        calls["nccl by cupy"] = _by_nccl(session.nccl, buffers)
    return [
        Side(
            Label(name, "peer", name, "allreduce", is_base=True),
            call,
            partial(buffers.is_right, call),
        )
        for name, call in calls.items()
    ]


def copy_of_all(task: Task) -> Side:
    """Return the bound: rank 0 copies as many bytes as all ranks have to read and write."""
    label = Label("copy of all ranks' bytes", "bound", "copy", "allreduce", is_base=True)
    if task.rank:
        return Side(label, _nothing, _always)
    import cupy

    copy = copy_side(2 * task.size * task.nbytes).call

    def call() -> None:
        copy()
        cupy.cuda.get_current_stream().synchronize()

    return Side(label, call, _always)


def _over_the_host(world: Any, buffers: GpuBuffers) -> Callable[[], None]:
    """Return a copy to pinned memory, MPI's all-reduce there, and a copy back."""
    import cupy

    runtime = cupy.cuda.runtime
    nbytes, size = buffers.send.nbytes, buffers.send.size
    memory = [cupy.cuda.alloc_pinned_memory(nbytes) for _ in range(2)]
    down, up = (np.frombuffer(one, np.float32, size) for one in memory)

    def call() -> None:
        stream = cupy.cuda.get_current_stream()
        pointers = down.ctypes.data, buffers.send.data.ptr
        runtime.memcpyAsync(*pointers, nbytes, runtime.memcpyDeviceToHost, stream.ptr)
        stream.synchronize()
        world.Allreduce(down, up)
        pointers = buffers.recv.data.ptr, up.ctypes.data
        runtime.memcpyAsync(*pointers, nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()

    return call


def _by_nccl(communicator: Any, buffers: GpuBuffers) -> Callable[[], None]:
    import cupy
    from cupy.cuda import nccl

    pointers = buffers.send.data.ptr, buffers.recv.data.ptr

    def call() -> None:
        stream = cupy.cuda.get_current_stream()
        kind = (nccl.NCCL_FLOAT32, nccl.NCCL_SUM)
        communicator.allReduce(*pointers, buffers.send.size, *kind, stream.ptr)
        stream.synchronize()

    return call


def _nothing() -> None:
    """Wait for rank 0, in the barrier of the next turn."""


def _always() -> bool:
    return True
