"""Programs of ranks: what a program does wrong, and peers that are lost."""

import os
import subprocess
import sys
import time
from pathlib import Path

import cupy
import numpy as np
import ranks
from cupy.cuda import nccl
from ranks import FLOAT, INT, INVALID_ARGUMENT, RANK, RANKS, SUM, WORLD, finish, until


def _memory():
    return cupy.zeros(100, np.float32), cupy.zeros(100, np.float32)


def _different_calls(c, x, y):
    """Pairs of different calls, by rank 0 and by the others."""
    return {
        "count": (
            lambda: c.allReduce(x, y, 10, FLOAT, SUM, 0),
            lambda: c.allReduce(x, y, 11, FLOAT, SUM, 0),
        ),
        "dtype": (
            lambda: c.allReduce(x, y, 10, FLOAT, SUM, 0),
            lambda: c.allReduce(x, y, 10, INT, SUM, 0),
        ),
        "op": (
            lambda: c.allReduce(x, y, 10, FLOAT, SUM, 0),
            lambda: c.allReduce(x, y, 10, FLOAT, nccl.NCCL_MAX, 0),
        ),
        "root": (
            lambda: c.bcast(x, 10, FLOAT, 0, 0),
            lambda: c.bcast(x, 10, FLOAT, 1, 0),
        ),
        "collective": (
            lambda: c.allReduce(x, y, 10, FLOAT, SUM, 0),
            lambda: c.allGather(x, y, 10, FLOAT, 0),
        ),
        "message": (
            lambda: c.send(x, 10, FLOAT, 1, 0),
            lambda: RANK == 1 and c.recv(x, 9, FLOAT, 0, 0),
        ),
        "exchange": (  # without a group
            lambda: (c.send(x, 10, FLOAT, 1, 0), c.recv(y, 10, FLOAT, 1, 0)),
            lambda: RANK == 1 and (c.send(x, 10, FLOAT, 0, 0), c.recv(y, 10, FLOAT, 0, 0)),
        ),
        "kind": (
            lambda: c.allReduce(x, y, 10, FLOAT, SUM, 0),
            lambda: c.recv(x, 10, FLOAT, 0, 0),
        ),
    }


def different():
    """Each is an error that all ranks name; the communicator is of no more use."""
    x, y = _memory()
    for name in _different_calls(None, 0, 0):
        c = ranks.communicator()
        calls = _different_calls(c, x.data.ptr, y.data.ptr)[name]
        calls[min(RANK, 1)]()
        until(lambda: ranks.asynchronous_error(c.comm) == 5, name)  # noqa: B023 (called at once)
        assert "real GPU would hang" in ranks.last_error(), name
        finish()
        again = (x.data.ptr, y.data.ptr, 10, FLOAT, SUM, 0)
        assert ranks.refusal(c.allReduce, *again) == 5
        WORLD.Barrier()
        c.abort()


def different_hangs():
    """With PRETEND_NCCL_HANG=1 it hangs as on hardware, until the communicator is aborted."""
    x, y = _memory()
    for name in ("count", "message", "exchange", "kind"):
        c = ranks.communicator()
        _different_calls(c, x.data.ptr, y.data.ptr)[name][min(RANK, 1)]()
        if RANK < 2:
            assert ranks.is_stuck()
        c.check_async_error()
        WORLD.Barrier()
        c.abort()
        finish(timeout_s=2)


def wrong_memory():
    c = ranks.communicator()
    x, _ = _memory()
    exactly = cupy.cuda.runtime.malloc(400)
    pinned = cupy.cuda.alloc_pinned_memory(400)
    host = np.zeros(100, np.float32)
    for name, pointer, count in [
        ("pageable", host.ctypes.data, 10),
        ("pinned", pinned.ptr, 10),
        ("null", 0, 10),
        ("too short", exactly, 101),
        ("too short at its end", exactly + 396, 2),
        ("too large", exactly, 1 << 62),
    ]:
        for call in (
            lambda: c.allReduce(x.data.ptr, pointer, count, FLOAT, SUM, 0),  # noqa: B023
            lambda: c.allReduce(pointer, x.data.ptr, count, FLOAT, SUM, 0),  # noqa: B023
            lambda: c.send(pointer, count, FLOAT, 0, 0),  # noqa: B023
        ):
            assert ranks.refusal(call) == INVALID_ARGUMENT, name
        assert "ncclSend" in ranks.last_error()
    # Overlap is right in place only.
    inside = exactly + 4
    assert ranks.refusal(c.allReduce, exactly, inside, 10, FLOAT, SUM, 0) == 4
    assert ranks.refusal(c.allGather, inside, exactly, 10, FLOAT, 0) == 4
    assert ranks.refusal(c.reduceScatter, exactly, inside, 10, FLOAT, SUM, 0) == 4
    c.allReduce(exactly, exactly, 100, FLOAT, SUM, 0)
    finish()
    cupy.cuda.runtime.free(exactly)
    c.destroy()


def wrong_numbers():
    c = ranks.communicator()
    x = _memory()[0].data.ptr
    assert ranks.refusal(c.allReduce, x, x, 10, 10, SUM, 0) == INVALID_ARGUMENT
    assert ranks.refusal(c.allReduce, x, x, 10, FLOAT, 5, 0) == INVALID_ARGUMENT
    assert ranks.refusal(c.bcast, x, 10, FLOAT, RANKS, 0) == INVALID_ARGUMENT
    assert ranks.refusal(c.recv, x, 10, FLOAT, -1, 0) == INVALID_ARGUMENT
    # A message to oneself outside of a group would wait for ever.
    assert ranks.refusal(c.send, x, 10, FLOAT, RANK, 0) == ranks.INVALID_USAGE
    c.check_async_error()
    c.destroy()


def left_early():
    """A rank that waits for one that has finalized learns of it."""
    c = ranks.communicator()
    x, y = _memory()
    if RANK == 0:
        c.allReduce(x.data.ptr, y.data.ptr, 10, FLOAT, SUM, 0)
        until(lambda: ranks.asynchronous_error(c.comm) == 5, "the error")
        assert "has finalized" in ranks.last_error()
        finish()
    c.destroy()


def peer_aborts():
    """As on hardware: the others get ncclRemoteError and wait on until they abort, too."""
    c = ranks.communicator()
    x, y = _memory()
    call = (x.data.ptr, y.data.ptr, 10, FLOAT, SUM, 0)
    if RANK:
        c.allReduce(*call)
    WORLD.Barrier()
    if RANK == 0:
        c.abort()
    else:
        until(lambda: ranks.asynchronous_error(c.comm) == ranks.REMOTE_ERROR, "the error")
        assert "rank 0" in ranks.last_error()
        assert ranks.refusal(c.allReduce, *call) == ranks.REMOTE_ERROR
        assert ranks.is_stuck()
        c.abort()
        finish(timeout_s=2)
    x += 1  # its memory and the device are as good as before
    assert x.get()[0] == 1
    WORLD.Barrier()
    c = ranks.communicator()
    c.allReduce(x.data.ptr, y.data.ptr, 10, FLOAT, SUM, 0)
    finish()
    assert y.get()[0] == RANKS
    c.destroy()


def peer_dies():
    """One rank more is killed while the others wait for it; they go on without it."""
    unique_id, rest = ranks.shared_id(), ranks.shared_id()
    doomed = None
    if RANK == 0:
        program = Path(__file__).with_name("doomed.py")
        arguments = [unique_id.hex(), str(RANKS + 1), str(RANKS)]
        doomed = subprocess.Popen([sys.executable, program, *arguments])
    c = nccl.NcclCommunicator(RANKS + 1, unique_id, RANK)
    x, y = _memory()
    x += 1
    c.allReduce(x.data.ptr, y.data.ptr, 10, FLOAT, SUM, 0)
    WORLD.Barrier()
    if doomed is not None:
        doomed.kill()
    if os.environ.get("PRETEND_NCCL_HANG"):
        time.sleep(0.5)
        c.check_async_error()
    else:
        until(lambda: ranks.asynchronous_error(c.comm) == ranks.REMOTE_ERROR, "the error")
        assert f"rank {RANKS} " in ranks.last_error()
    assert ranks.is_stuck(after_s=0.1)
    c.abort()
    finish(timeout_s=2)
    if doomed is not None:
        doomed.wait()
    c = nccl.NcclCommunicator(RANKS, rest, RANK)
    c.allReduce(x.data.ptr, y.data.ptr, 10, FLOAT, SUM, 0)
    finish()
    assert y.get()[0] == RANKS
    c.destroy()


if __name__ == "__main__":
    ranks.main(globals())
