"""Two threads of a rank that share a communicator, or have one each: right sums, and no hang."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking import deadlock

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=40)


class Thread(threading.Thread):
    """A thread whose error is raised where it is joined."""

    def __init__(self, body: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._body, self.error = body, None

    def run(self) -> None:
        try:
            self._body()
        except BaseException as error:  # noqa: BLE001 - raised by end()
            self.error = error

    def end(self) -> None:
        self.join()
        if self.error is not None:
            raise self.error


def test_a_thread_looks_after_its_own_call_while_another_waits() -> None:
    with Communicator() as comm:
        x = np.arange(2 << 20, dtype=np.float32)[::2] % 1000
        for _ in range(4):
            comm.barrier()
            if comm.rank == 1:
                time.sleep(0.06)
                total = comm.allreduce(x, timeout=10)
                comm.iallreduce(np.ones(3)).wait(10)
            else:
                thread = Thread(partial(look_after, comm, comm._engine.started))
                thread.start()
                total = comm.allreduce(x, timeout=10)
                thread.end()
            np.testing.assert_array_equal(total, 2 * x)


def await_another_call(comm: Communicator, started: int) -> None:
    """Wait until another thread has begun a call, after `started` that were begun before."""
    while comm._engine.started == started:
        time.sleep(0.001)


def look_after(comm: Communicator, started: int) -> None:
    await_another_call(comm, started)
    work = comm.iallreduce(np.ones(3))
    while not work.test():
        pass
    np.testing.assert_array_equal(work.wait(10), np.full(3, 2.0))


def test_a_call_that_began_later_in_another_thread_comes_later() -> None:
    first, second = np.ones(8), np.ones((3, 5), np.float32)[:, ::2]
    with Communicator() as comm:
        for _ in range(5):
            comm.barrier()
            if comm.rank == 1:
                time.sleep(0.05)
                np.testing.assert_array_equal(comm.allreduce(first), 2 * first)
                np.testing.assert_array_equal(comm.allreduce(second), 2 * second)
                continue
            threads = [Thread(partial(begin_first, comm, first))]
            threads.append(Thread(partial(begin_second, comm, second, comm._engine.started)))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.end()


def begin_first(comm: Communicator, array: np.ndarray) -> None:
    np.testing.assert_array_equal(comm.allreduce(array), 2 * array)


def begin_second(comm: Communicator, array: np.ndarray, started: int) -> None:
    await_another_call(comm, started)
    np.testing.assert_array_equal(comm.allreduce(array), 2 * array)


@contextlib.contextmanager
def many_switches() -> Iterator[None]:
    """Let another thread run after every few lines."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_short_and_queued_calls_of_threads_begin_one_by_one() -> None:
    """All are alike, so that any order is right."""
    with Communicator() as comm, many_switches():
        threads = [Thread(lambda: call_at_once(comm)) for _ in range(2)]
        threads.append(Thread(lambda: call_later(comm)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.end()


def call_at_once(comm: Communicator) -> None:
    for _ in range(400):
        np.testing.assert_array_equal(comm.allreduce(np.ones(64)), np.full(64, 2.0))


def call_later(comm: Communicator) -> None:
    for _ in range(100):
        works = [comm.iallreduce(np.ones(64)) for _ in range(4)]
        while not works[0].test():
            pass
        for work in works:
            np.testing.assert_array_equal(work.wait(), np.full(64, 2.0))


def test_threads_with_a_communicator_each_may_wait_for_long() -> None:
    """Neither waits for the other rank's other thread, although it looks like that."""
    soon = mock.patch.object(deadlock, "SAY_AFTER_S", 0.5)
    with soon, Communicator() as one, Communicator() as other:
        pause = 2 * deadlock.SAY_AFTER_S

        def body() -> None:
            time.sleep(pause if one.rank == 0 else 0)
            np.testing.assert_array_equal(other.allreduce(np.ones(4)), np.full(4, 2.0))

        thread = Thread(body)
        thread.start()
        time.sleep(pause if one.rank == 1 else 0)
        np.testing.assert_array_equal(one.allreduce(np.ones(4)), np.full(4, 2.0))
        thread.end()
