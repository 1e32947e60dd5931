"""Programs of ranks: messages between two ranks, and groups."""

import cupy
import numpy as np
import ranks
from cupy.cuda import nccl
from ranks import FLOAT, RANK, RANKS, SUM, finish


def ring():
    """In a group, sends and receives of any size progress together."""
    c = ranks.communicator()
    for count in (0, 1, 70000, 1 << 20):
        send, receive = cupy.full(count, RANK, np.float32), cupy.zeros(count, np.float32)
        nccl.groupStart()
        c.send(send.data.ptr, count, FLOAT, (RANK + 1) % RANKS, 0)
        c.recv(receive.data.ptr, count, FLOAT, (RANK - 1) % RANKS, 0)
        nccl.groupEnd()
        finish()
        np.testing.assert_array_equal(receive.get(), (RANK - 1) % RANKS)
    c.destroy()


def all_to_all():
    """Ragged parts for all ranks, this one among them."""
    c = ranks.communicator()
    room = 100000
    send, receive = cupy.empty((RANKS, room), np.float32), cupy.zeros((RANKS, room), np.float32)
    send[:] = RANK
    nccl.groupStart()
    for peer in range(RANKS):
        c.send(send[peer].data.ptr, room - peer, FLOAT, peer, 0)
        c.recv(receive[peer].data.ptr, room - RANK, FLOAT, peer, 0)
    nccl.groupEnd()
    finish()
    got = receive.get()
    for peer in range(RANKS):
        np.testing.assert_array_equal(got[peer, : room - RANK], peer)
        np.testing.assert_array_equal(got[peer, room - RANK :], 0)
    c.destroy()


def in_order():
    """Messages to one rank arrive in their order, across launches and in one."""
    c = ranks.communicator()
    x = cupy.arange(10, dtype=np.int32)
    y = cupy.zeros(10, np.int32)
    cupy.cuda.Stream.null.synchronize()
    for start in (0, 5):
        nccl.groupStart()
        for i in range(start, start + 5):
            if RANK == 0:
                c.send(x[i:].data.ptr, 1, nccl.NCCL_INT32, 1, 0)
            elif RANK == 1:
                c.recv(y[i:].data.ptr, 1, nccl.NCCL_INT32, 0, 0)
        nccl.groupEnd()
    finish()
    if RANK == 1:
        np.testing.assert_array_equal(y.get(), np.arange(10))
    c.destroy()


def without_group():
    """One rank sends, the other receives: needs no group, whoever comes first."""
    c = ranks.communicator()
    x = cupy.full(1000, RANK, np.float32)
    for sender in (0, 1):
        if sender == RANK:
            c.send(x.data.ptr, 1000, FLOAT, 1 - sender, 0)
        elif 1 - sender == RANK:
            c.recv(x.data.ptr, 1000, FLOAT, sender, 0)
    finish()
    assert RANK > 1 or x.get()[0] == 0
    c.destroy()


def nested_groups():
    """Calls begin at the end of the outermost group; its error says that none began."""
    c = ranks.communicator()
    x, y = cupy.ones(10, np.float32), cupy.full(10, 7, np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Stream.null.synchronize()
    nccl.groupStart()
    nccl.groupStart()
    c.allReduce(x.data.ptr, y.data.ptr, 10, FLOAT, SUM, stream.ptr)
    nccl.groupEnd()
    assert stream.done
    c.bcast(y.data.ptr, 10, FLOAT, 0, stream.ptr)
    nccl.groupEnd()
    finish(stream)
    np.testing.assert_array_equal(y.get(), RANKS)
    nccl.groupStart()
    c.allReduce(x.data.ptr, x.data.ptr, 10, FLOAT, SUM, 0)
    assert ranks.refusal(c.allReduce, x.data.ptr, y.data.ptr, 10, 99, SUM, 0) == 4
    assert ranks.refusal(nccl.groupEnd) == ranks.INVALID_ARGUMENT
    np.testing.assert_array_equal(x.get(), 1)
    assert ranks.refusal(nccl.groupEnd) == ranks.INVALID_USAGE
    c.destroy()


def streams_of_a_group():
    """A group's work waits for all its streams, and they for it."""
    c = ranks.communicator()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    x, y = cupy.zeros(1 << 16, np.float32), cupy.zeros(1 << 16, np.float32)
    cupy.cuda.Stream.null.synchronize()
    for turn in range(1, 11):
        for stream, array in zip(streams, (x, y), strict=True):
            with stream:
                array[:] = turn
        nccl.groupStart()
        for stream, array in zip(streams, (x, y), strict=True):
            c.allReduce(array.data.ptr, array.data.ptr, array.size, FLOAT, SUM, stream.ptr)
        nccl.groupEnd()
        for stream, array in zip(streams, (x, y), strict=True):
            with stream:
                cupy.multiply(array, 2, out=array)
    for stream, array in zip(streams, (x, y), strict=True):
        finish(stream)
        np.testing.assert_array_equal(array.get(), 20 * RANKS)
    c.destroy()


if __name__ == "__main__":
    ranks.main(globals())
