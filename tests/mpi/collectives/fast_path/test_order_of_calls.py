"""The fast path of ``communicator.allreduce`` mixed with slow calls, other calls and threads."""

import threading
import time

import numpy as np
import pytest

from helpers.collectives.fast_path import assert_equal, check, open_communicator, slow
from mpistrat.errors import MismatchError


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("count", [3, 600, 9000, 150_000])
def test_ranks_that_go_different_ways_meet(count):
    with open_communicator() as comm:
        ways = {
            "plain": lambda x: comm.allreduce(x, "sum"),
            "in place": lambda x: comm.allreduce(x, out=x),
            "strided": lambda x: comm.allreduce(x.repeat(2)[::2]),
            "backwards": lambda x: comm.allreduce(x[::-1].copy()[::-1]),
            "a list": lambda x: comm.allreduce(x.tolist()),
            "a deadline": lambda x: comm.allreduce(x, timeout=20),
            "a nonblocking one": lambda x: comm.iallreduce(x).wait(),
            "an out of its own": lambda x: comm.allreduce(x, out=np.empty(2 * count)[::2]),
            "long": lambda x: slow(comm, x),
            "registered": lambda x: comm.allreduce(registered, out=registered),
        }
        registered = comm.empty(count)
        names = list(ways)
        want = np.arange(count) * 1.5 * sum(range(1, comm.size + 1))
        for i in range(2 * len(names)):
            name = names[(i + comm.rank * (1 + i // len(names))) % len(names)]
            x = np.arange(count) * 1.5 * (comm.rank + 1)
            registered[:] = x
            np.testing.assert_array_equal(ways[name](x), want, name)


@pytest.mark.mpi(ranks=[2, 3])
def test_calls_that_differ_are_a_mismatch_and_then_all_is_well():
    with open_communicator() as comm:
        is_last = comm.rank == comm.size - 1
        x = np.ones(6)
        for other in (
            lambda: comm.allreduce(np.ones(7)),
            lambda: comm.allreduce(np.ones((2, 3))),
            lambda: comm.allreduce(np.ones(6, np.float32)),
            lambda: comm.allreduce(x, "max"),
            lambda: comm.allreduce(np.ones(200_000)),
            lambda: comm.reduce(x),
            comm.barrier,
        ):
            for is_one in (is_last, not is_last):
                before = x.copy()
                with pytest.raises(MismatchError, match="different collectives"):
                    other() if is_one else comm.allreduce(x, out=x)
                np.testing.assert_array_equal(x, before)
                check(comm, np.ones(3), is_fast=True)
        comm.label = "a loss" if is_last else "a gradient"
        with pytest.raises(MismatchError, match="a gradient"):
            comm.allreduce(x)
        comm.label = "a loss"
        check(comm, x, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_it_keeps_its_place_behind_calls_that_were_started():
    with open_communicator() as comm:
        long, short = np.full(400_000, 1.0), np.full(3, 2.0)
        for i in range(20):
            if comm.rank == i % 2:
                time.sleep(2e-3)  # so that the other one's work is still under way
            work = comm.iallreduce(long)
            assert_equal(comm.allreduce(short), np.full(3, 4.0))
            assert work.done
            works = [comm.iallreduce(short) for _ in range(3)]
            assert_equal(comm.allreduce(short, out=short.copy()), np.full(3, 4.0))
            assert_equal(works[2].wait(), np.full(3, 4.0))
            assert_equal(work.wait(), np.full(400_000, 2.0))
        check(comm, short, is_fast=True)


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_two_threads_with_a_communicator_each():
    comms = [open_communicator() for _ in range(2)]
    errors = []

    def work(number):
        try:
            random = np.random.default_rng()
            for i in range(150):
                count = (3, 5000, 60_000)[i % 3]
                if random.random() < 0.1:
                    time.sleep(random.uniform(0, 2e-3))
                total = comms[number].allreduce(np.full(count, float(i + number)))
                assert (total == 2.0 * (i + number)).all()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for comm in comms:
        check(comm, np.ones(3), is_fast=True)
        comm.close()
