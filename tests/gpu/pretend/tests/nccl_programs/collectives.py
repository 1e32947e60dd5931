"""Programs of ranks: the collectives, against NumPy."""

import cupy
import numpy as np
import ranks
from cupy.cuda import nccl
from ranks import DTYPES, FLOAT, RANK, RANKS, SUM, finish


def _inputs(count, dtype):
    """Small values of all ranks: their sums and products are exact in every dtype."""
    draws = [np.random.default_rng([rank, count]) for rank in range(RANKS)]
    return [draw.integers(0, 3, count).astype(dtype) for draw in draws]


def _expected(inputs, op):
    dtype = inputs[0].dtype
    values = np.array(inputs).astype("float64")
    if op == nccl.NCCL_AVG:
        if dtype.kind in "iu":
            return (values.sum(0) // RANKS).astype(dtype)
        # As NCCL: every input is multiplied by 1 / ranks, rounded to the dtype.
        wide = np.float64 if dtype == np.float64 else np.float32
        factor = np.asarray(1 / RANKS).astype(wide).astype(dtype).astype(wide)
        total = np.zeros(len(inputs[0]), wide)
        for one in inputs:
            total = total + one.astype(wide) * factor
        return total.astype(dtype)
    return {
        nccl.NCCL_SUM: values.sum,
        nccl.NCCL_PROD: values.prod,
        nccl.NCCL_MAX: values.max,
        nccl.NCCL_MIN: values.min,
    }[op](0).astype(dtype)


def _on_device(array):
    """A copy on the device as bytes: CuPy need not know the dtype."""
    return cupy.asarray(np.ascontiguousarray(array).view(np.uint8))


def _same(on_device, expected):
    np.testing.assert_array_equal(on_device.get(), np.ascontiguousarray(expected).view(np.uint8))


def all_reduce():
    c = ranks.communicator()
    for number, dtype in DTYPES.items():
        for count in (1, 1000, 1048577 // dtype.itemsize):
            inputs = _inputs(count, dtype)
            for op in range(5):
                send = _on_device(inputs[RANK])
                receive = cupy.empty_like(send)
                c.allReduce(send.data.ptr, receive.data.ptr, count, number, op, 0)
                c.allReduce(send.data.ptr, send.data.ptr, count, number, op, 0)
                finish()
                _same(receive, _expected(inputs, op))
                _same(send, _expected(inputs, op))
    c.destroy()


def reduce_and_broadcast():
    c = ranks.communicator()
    for number, dtype in DTYPES.items():
        for root in range(RANKS):
            inputs = _inputs(100, dtype)
            send, receive = _on_device(inputs[RANK]), _on_device(np.zeros(100, dtype))
            c.reduce(send.data.ptr, receive.data.ptr, 100, number, SUM, root, 0)
            finish()
            _same(receive, _expected(inputs, SUM) if root == RANK else np.zeros(100, dtype))
            c.broadcast(send.data.ptr, receive.data.ptr, 100, number, root, 0)
            finish()
            _same(receive, inputs[root])
            c.bcast(send.data.ptr, 100, number, root, 0)
            finish()
            _same(send, inputs[root])
    c.destroy()


def gather_and_scatter():
    c = ranks.communicator()
    for number, dtype in DTYPES.items():
        for count in (1, 300001):
            inputs = _inputs(count, dtype)
            whole = np.concatenate(inputs)
            nbytes = count * dtype.itemsize
            everything = cupy.empty(RANKS * nbytes, np.uint8)
            mine = _on_device(inputs[RANK])
            c.allGather(mine.data.ptr, everything.data.ptr, count, number, 0)
            finish()
            _same(everything, whole)
            part = everything[RANK * nbytes : (RANK + 1) * nbytes]
            everything[:] = 0
            part[:] = mine
            c.allGather(part.data.ptr, everything.data.ptr, count, number, 0)
            finish()
            _same(everything, whole)
            total = _expected([inputs[RANK]] * RANKS, SUM)
            c.reduceScatter(everything.data.ptr, mine.data.ptr, count, number, SUM, 0)
            c.reduceScatter(everything.data.ptr, part.data.ptr, count, number, SUM, 0)
            finish()
            _same(mine, total)
            _same(part, total)
    c.destroy()


def rounding():
    """Halves are summed in float32 and rounded once; integers wrap; max ignores NaN."""
    c = ranks.communicator()

    def reduced(mine, number, op):
        array = _on_device(mine)
        c.allReduce(array.data.ptr, array.data.ptr, mine.size, number, op, 0)
        finish()
        return array.get().view(mine.dtype)

    # 2049 is between two float16: rounded at each of two steps, 2048 + 1 + 1 would be 2048.
    half = np.array([2048 if RANK == 0 else 1], np.float16)
    assert reduced(half, nccl.NCCL_FLOAT16, SUM)[0] == np.float16(2048 + RANKS - 1)
    wide = np.array([256 if RANK == 0 else 1], DTYPES[nccl.NCCL_BFLOAT16])
    assert float(reduced(wide, nccl.NCCL_BFLOAT16, SUM)[0]) == float(
        np.asarray(256 + RANKS - 1).astype(wide.dtype)
    )
    huge = np.array([np.iinfo(np.int32).max], np.int32)
    assert reduced(huge, nccl.NCCL_INT32, SUM)[0] == np.array(
        [np.iinfo(np.int32).max * RANKS], np.int64
    ).astype(np.int32)
    low = np.array([-5 if RANK == 0 else 0], np.int32)
    assert reduced(low, nccl.NCCL_INT32, nccl.NCCL_AVG)[0] == -(5 // RANKS)
    some = np.array([np.nan if RANK == 0 else RANK, np.inf], np.float32)
    np.testing.assert_array_equal(reduced(some, FLOAT, nccl.NCCL_MAX), [RANKS - 1, np.inf])
    nan = np.array([np.nan], DTYPES[nccl.NCCL_BFLOAT16])
    assert np.isnan(reduced(nan, nccl.NCCL_BFLOAT16, SUM).astype("f4"))[0]
    c.destroy()


def ordered_on_streams():
    """Work takes its place among a stream's work; a call returns before peers come."""
    c = ranks.communicator()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(1000, np.float32)
        for turn in range(20):
            x += RANK + turn
            c.allReduce(x.data.ptr, x.data.ptr, x.size, FLOAT, nccl.NCCL_MAX, stream.ptr)
    finish(stream)
    np.testing.assert_array_equal(x.get(), 20 * (RANKS - 1) + sum(range(20)))
    ranks.WORLD.Barrier()
    with stream:
        y = cupy.full(10, 1, np.float32)
    if RANK == 0:
        c.allReduce(y.data.ptr, y.data.ptr, 10, FLOAT, SUM, stream.ptr)
        assert ranks.is_stuck(stream, 0.2)
        ranks.WORLD.Barrier()
    else:
        ranks.WORLD.Barrier()
        c.allReduce(y.data.ptr, y.data.ptr, 10, FLOAT, SUM, stream.ptr)
    finish(stream)
    np.testing.assert_array_equal(y.get(), RANKS)
    c.destroy()


def two_streams():
    """Calls of one communicator on two streams run in the order of the calls."""
    c = ranks.communicator()
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    x, y = cupy.ones(1000, np.int32), cupy.empty(1000, np.int32)
    cupy.cuda.Stream.null.synchronize()
    for _ in range(10):
        c.allReduce(x.data.ptr, y.data.ptr, 1000, nccl.NCCL_INT32, SUM, first.ptr)
        c.allReduce(y.data.ptr, x.data.ptr, 1000, nccl.NCCL_INT32, nccl.NCCL_MAX, second.ptr)
    finish(first)
    finish(second)
    np.testing.assert_array_equal(x.get(), RANKS**10)
    c.destroy()


def empty():
    """An empty collective is nothing, on any rank; null pointers are right for it."""
    c = ranks.communicator()
    if RANK == 0:
        c.allReduce(0, 0, 0, FLOAT, SUM, 0)
    x = cupy.ones(1, np.float32)
    c.allReduce(x.data.ptr, x.data.ptr, 1, FLOAT, SUM, 0)
    finish()
    assert x.get()[0] == RANKS
    c.destroy()


if __name__ == "__main__":
    ranks.main(globals())
