"""Programs of ranks: making, splitting and ending communicators."""

import ctypes
import time

import cupy
import numpy as np
import ranks
from cupy.cuda import nccl
from ranks import FLOAT, LIBRARY, RANK, RANKS, SUM, WORLD, asynchronous_error, finish, until


def _sum_of(c, value):
    x = cupy.full(5, value, np.float32)
    c.allReduce(x.data.ptr, x.data.ptr, 5, FLOAT, SUM, 0)
    finish()
    return x.get()[0]


def queries():
    c = ranks.communicator()
    assert (c.size(), c.rank_id(), c.device_id()) == (RANKS, RANK, cupy.cuda.Device().id)
    c.check_async_error()
    assert nccl.get_version() == nccl.get_build_version()
    assert len(nccl.get_unique_id()) == 128
    assert _sum_of(c, 1) == RANKS
    c.destroy()


def split():
    c = ranks.communicator()
    for _ in range(3):
        # The order is that of the keys, here backwards; rank 0 joins nothing.
        child = c.commSplit(-1 if RANK == 0 else 1, -RANK)
        if RANK == 0:
            assert child is None
        else:
            assert (child.size(), child.rank_id()) == (RANKS - 1, RANKS - 1 - RANK)
            assert _sum_of(child, RANK) == sum(range(RANKS))
            child.destroy()
    halves = c.commSplit(RANK % 2, 0)
    assert _sum_of(halves, 1) == len(range(RANK % 2, RANKS, 2))
    assert _sum_of(c, 1) == RANKS
    halves.destroy()
    c.destroy()


def several():
    """Communicators of the same ranks do not mix."""
    all_of_them = [ranks.communicator() for _ in range(3)]
    arrays = [cupy.full(10, i, np.float32) for i in range(3)]
    for c, x in zip(all_of_them, arrays, strict=True):
        c.allReduce(x.data.ptr, x.data.ptr, 10, FLOAT, SUM, 0)
    finish()
    assert [x.get()[0] for x in arrays] == [0, RANKS, 2 * RANKS]
    for c in all_of_them:
        c.destroy()


def without_blocking():
    """A call answers ncclInProgress, and no other is allowed until it has ended."""
    unique_id = ranks.shared_id()
    if RANK == 0:
        time.sleep(0.3)
    c = ranks.begin_without_blocking(unique_id, RANKS, RANK)
    if RANK:
        assert asynchronous_error(c) == ranks.IN_PROGRESS
        assert LIBRARY.ncclCommFinalize(c) == ranks.INVALID_ARGUMENT
    until(lambda: asynchronous_error(c) == 0, "the communicator")
    child = ctypes.c_void_p()
    made = LIBRARY.ncclCommSplit(
        ctypes.c_void_p(c), 0, RANK, ctypes.byref(child), ctypes.c_void_p()
    )
    assert made == ranks.IN_PROGRESS
    until(lambda: asynchronous_error(c) == asynchronous_error(child.value) == 0, "its child")
    for one in (child.value, c):
        assert LIBRARY.ncclCommFinalize(one) == ranks.IN_PROGRESS
        until(lambda: asynchronous_error(one) == 0, "the end")  # noqa: B023 (called at once)
        assert LIBRARY.ncclCommDestroy(one) == 0


def lonely():
    """The others never come: a non-blocking start can be given up."""
    if RANK == 0:
        c = ranks.begin_without_blocking(nccl.get_unique_id(), RANKS, RANK)
        time.sleep(0.2)
        assert asynchronous_error(c) == ranks.IN_PROGRESS
        begin = time.monotonic()
        assert LIBRARY.ncclCommAbort(c) == 0
        assert time.monotonic() - begin < 2
    WORLD.Barrier()


def end():
    """Finalized and destroyed communicators refuse; all ranks have to destroy."""
    c = ranks.communicator()
    x = cupy.ones(5, np.float32)
    handle = c.comm
    assert LIBRARY.ncclCommFinalize(ctypes.c_void_p(handle)) == 0
    call = (x.data.ptr, x.data.ptr, 5, FLOAT, SUM, 0)
    assert ranks.refusal(c.allReduce, *call) == ranks.INVALID_USAGE
    c.destroy()
    assert LIBRARY.ncclCommDestroy(ctypes.c_void_p(handle)) == ranks.INVALID_ARGUMENT
    c = ranks.communicator()
    begin = time.monotonic()
    if RANK == 0:
        time.sleep(0.5)
    c.destroy()
    assert time.monotonic() - begin >= 0.4


def one_id_once():
    """A unique id makes one communicator; bytes of one's own make none."""
    unique_id = ranks.shared_id()
    c = nccl.NcclCommunicator(RANKS, unique_id, RANK)
    WORLD.Barrier()
    assert ranks.refusal(nccl.NcclCommunicator, RANKS, unique_id, RANK) == 2
    assert ranks.refusal(nccl.NcclCommunicator, RANKS, bytes(128), RANK) == 4
    assert ranks.refusal(nccl.NcclCommunicator, RANKS, nccl.get_unique_id(), RANKS) == 4
    c.destroy()


def same_device():
    """Ranks that share a GPU are refused, on all ranks."""
    assert ranks.refusal(nccl.NcclCommunicator, RANKS, ranks.shared_id(), RANK) == 5
    assert "Duplicate GPU" in ranks.last_error()


def same_rank():
    assert ranks.refusal(nccl.NcclCommunicator, RANKS, ranks.shared_id(), 0) == 5
    assert "rank 0" in ranks.last_error()


def all_devices():
    """One process that drives several devices."""
    devices = cupy.cuda.runtime.getDeviceCount()
    assert devices > 1
    all_of_them = nccl.NcclCommunicator.initAll(devices)
    arrays = []
    for device in range(devices):
        with cupy.cuda.Device(device):
            arrays.append(cupy.full(5, device, np.float32))
            cupy.cuda.Stream.null.synchronize()
    nccl.groupStart()
    for device, (c, x) in enumerate(zip(all_of_them, arrays, strict=True)):
        with cupy.cuda.Device(device):
            c.allReduce(x.data.ptr, x.data.ptr, 5, FLOAT, SUM, 0)
    nccl.groupEnd()
    for device, x in enumerate(arrays):
        with cupy.cuda.Device(device):
            finish()
            assert x.get()[0] == sum(range(devices))
    with cupy.cuda.Device(0):
        wrong = ranks.refusal(all_of_them[0].bcast, arrays[1].data.ptr, 5, FLOAT, 0, 0)
        assert wrong == ranks.INVALID_ARGUMENT
        assert "memory of device 1" in ranks.last_error()
    nccl.groupStart()
    for c in all_of_them:
        c.destroy()
    nccl.groupEnd()


if __name__ == "__main__":
    ranks.main(globals())
