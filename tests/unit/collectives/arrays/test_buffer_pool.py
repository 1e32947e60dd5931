"""The pool of result memory: never less than asked for, never lent to two at once."""

import sys
import threading

import numpy as np
import pytest

from mpistrat.collectives.arrays.buffer_pool import BufferPool

MB = 1 << 20
FLOAT = np.dtype(np.float32)
SHAPE = (1 << 18, 4)


def room(loan):
    """Return the bytes of the block that a loan is a part of."""
    return loan.base._block.size


def test_a_block_is_lent_again_once_it_is_free():
    pool = BufferPool()
    first, second = pool.lend(MB), pool.lend(MB)
    address = first.ctypes.data
    view = first[10:].view(np.float16)
    del first
    third = pool.lend(MB)  # the view is still there
    assert len({address, second.ctypes.data, third.ctypes.data}) == 3
    del view
    assert pool.lend(MB - 100).ctypes.data == address


@pytest.mark.parametrize("step", range(1, 12))
def test_a_loan_that_ends_while_another_begins(step):
    """As in another thread, or by the garbage collector, which strike anywhere."""
    pool = BufferPool()
    sizes = [4 * MB, MB, MB, MB]
    free = [pool.lend(size) for size in sizes]
    ending = [pool.lend(MB)]
    while free:
        free.pop(0)
    left = step

    def strike(frame, event, argument):
        nonlocal left
        if event == "line" and frame.f_code is BufferPool.lend.__code__:
            left -= 1
            if left == 0:
                ending.clear()
        return strike

    before = sys.gettrace()
    sys.settrace(strike)
    try:
        loan = pool.lend(4 * MB)
    finally:
        sys.settrace(before)
    assert loan.size == 4 * MB
    assert room(loan) >= loan.size


def address(array):
    return array.__array_interface__["data"][0]


def test_an_array_of_a_shape_comes_back_when_it_was_dropped():
    pool = BufferPool()
    first = pool.empty(SHAPE, FLOAT)
    assert first.shape == SHAPE
    assert first.dtype == FLOAT
    assert first.flags.c_contiguous
    assert first.flags.writeable
    where = address(first)
    del first
    assert address(pool.empty((SHAPE[0] - 5, 4), FLOAT)) == where


@pytest.mark.parametrize(
    "part",
    [
        lambda a: a,
        lambda a: a[3],
        lambda a: a.T[1:2],
        memoryview,
        lambda a: a.view(np.int16)[::7],
        lambda a: np.from_dlpack(a)[5:],
        iter,
    ],
)
def test_whoever_has_a_part_keeps_it(part):
    pool = BufferPool()
    array = pool.empty(SHAPE, FLOAT)
    where = address(array)
    kept = part(array)
    del array
    assert address(pool.empty(SHAPE, FLOAT)) != where
    del kept
    again = [pool.empty(SHAPE, FLOAT) for _ in range(2)]
    assert where in map(address, again)


@pytest.mark.parametrize("most_free", [1, 3])
def test_much_of_it_is_not_kept(most_free):
    pool = BufferPool(most_free=most_free)
    arrays = [pool.empty(SHAPE, FLOAT) for _ in range(9)]
    assert len({address(one) for one in arrays}) == 9
    del arrays
    assert len(pool._free) == most_free


@pytest.mark.parametrize("shape", [(0, 4), (5,), (), (1 << 19,)])
def test_small_and_large_ones_are_the_allocators(shape):
    pool = BufferPool(least_bytes=1 << 10, most_bytes=1 << 20)
    assert pool.empty(shape, FLOAT).shape == shape
    assert not pool._free


def test_a_much_smaller_result_does_not_hold_a_large_block():
    pool = BufferPool()
    where = address(pool.empty(SHAPE, FLOAT))
    assert address(pool.empty((SHAPE[0] // 3, 4), FLOAT)) != where


def test_threads_never_share():
    """All have one at once: each writes, and looks once all have written."""
    pool, wrong, rounds = BufferPool(), [], 100
    written = threading.Barrier(4)

    def work(number):
        for _ in range(rounds):
            array = pool.empty((MB,), FLOAT)
            array[:: 1 << 12] = number
            written.wait(30)
            if (array[:: 1 << 12] != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
