"""The pool of result buffers: never less than asked for, never lent to two at once."""

import sys

import numpy as np
import pytest

from mpistrat.collectives.arrays.buffer_pool import ResultPool

MB = 1 << 20


def room(loan):
    """Return the bytes of the block that a loan is a part of."""
    return loan.base._block.size


def test_a_block_is_lent_again_once_it_is_free():
    pool = ResultPool()
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
    pool = ResultPool()
    sizes = [4 * MB, MB, MB, MB]
    free = [pool.lend(size) for size in sizes]
    ending = [pool.lend(MB)]
    while free:
        free.pop(0)
    left = step

    def strike(frame, event, argument):
        nonlocal left
        if event == "line" and frame.f_code is ResultPool.lend.__code__:
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
