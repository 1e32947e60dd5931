"""Buffers of results are used again once no caller holds them, and not before."""

import threading

import numpy as np
import pytest

from mpistrat.ps.client import result_buffers

FLOAT = np.dtype(np.float32)
SHAPE = (1 << 18, 4)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(result_buffers, "_memories", [])


def address(array):
    return array.__array_interface__["data"][0]


def test_it_comes_back_when_it_was_dropped():
    first = result_buffers.empty(SHAPE, FLOAT)
    assert first.shape == SHAPE
    assert first.dtype == FLOAT
    assert first.flags.c_contiguous
    assert first.flags.writeable
    where = address(first)
    del first
    assert address(result_buffers.empty((SHAPE[0] - 5, 4), FLOAT)) == where


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
    array = result_buffers.empty(SHAPE, FLOAT)
    where = address(array)
    kept = part(array)
    del array
    assert address(result_buffers.empty(SHAPE, FLOAT)) != where
    del kept
    assert where in {address(result_buffers.empty(SHAPE, FLOAT)) for _ in range(2)}


def test_much_of_it_is_not_kept():
    arrays = [result_buffers.empty(SHAPE, FLOAT) for _ in range(9)]
    assert len({address(one) for one in arrays}) == 9
    del arrays
    assert len(result_buffers._memories) == 3


@pytest.mark.parametrize("shape", [(0, 4), (5,), (), (1 << 25,)])
def test_small_and_very_large_ones_are_the_allocators(shape):
    assert result_buffers.empty(shape, FLOAT).shape == shape
    assert not result_buffers._memories


def test_a_much_smaller_result_does_not_hold_a_large_memory():
    where = address(result_buffers.empty(SHAPE, FLOAT))
    assert address(result_buffers.empty((SHAPE[0] // 3, 4), FLOAT)) != where


def test_threads_never_share():
    """All hold a buffer at the same time: each writes, then all look at what they have."""
    barrier, right = threading.Barrier(4), []

    def work(number):
        for _ in range(300):
            array = result_buffers.empty((1 << 18,), FLOAT)
            array[:: 1 << 12] = number
            barrier.wait(30)  # all have written
            right.append((array[:: 1 << 12] == number).all())
            barrier.wait(30)  # all have looked; now the buffers may go

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(right) == 4 * 300
    assert all(right)
