"""Variables that the ranks of a node have once: memory, order of reads and writes, mistakes."""

import gc
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.strategy.central_storage import MEAN, communicator, made
from mpistrat import CentralStorageStrategy
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.mpi(ranks=[2, 3])


def test_ranks_see_one_memory_and_copy_nothing():
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        variable = made(strategy, np.arange(6.0) + comm.rank)
        view = variable.value()
        assert np.shares_memory(view, strategy.run(variable.value))
        assert not view.flags.writeable
        strategy.extended.update(variable, lambda v: v.assign(np.arange(6.0) * 7))
        np.testing.assert_array_equal(view, np.arange(6.0) * 7)  # written by rank 0
        variable.numpy()[:] = -1
        np.testing.assert_array_equal(view, np.arange(6.0) * 7)
        comm.barrier()


def shared_bytes():
    """Return the bytes of shared memory that this process has; those of several count in part."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Shmem")) * 1024


def private_bytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon")) * 1024


def test_memory_is_there_once_and_given_back():
    nbytes = 48 << 20
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        made(strategy, 0.0)
        before = shared_bytes(), private_bytes()
        comm.barrier()
        variable = made(strategy, lambda: np.ones(nbytes // 8))
        assert float(variable.value().sum()) == nbytes // 8  # touches every page
        comm.barrier()
        after = shared_bytes(), private_bytes()
        comm.barrier()
        added = comm.allgather_object([b - a for a, b in zip(before, after, strict=True)])
        assert sum(shared for shared, _ in added) == pytest.approx(nbytes, rel=0.1)
        assert max(private for _, private in added) < nbytes // 4
        del variable
        gc.collect()
        comm.barrier()
        made(strategy, 0.0)  # it is given back when the next one is made
        comm.barrier()
        left = comm.allgather_object(shared_bytes() - before[0])
        assert sum(left) < nbytes // 4


def late(comm, step):
    """Let another rank be late in each step."""
    if step % comm.size == comm.rank:
        time.sleep(0.02)


@pytest.mark.parametrize("size", [pytest.param(1000, marks=takes_long()), 800_000])
def test_no_rank_sees_what_is_half_written(size):
    """Ranks that are early wait before they write, and none goes on before all is written."""
    ways = {
        "across": lambda s, v, value: v.assign(value),
        "in replicas": lambda s, v, value: s.run(lambda: v.assign(value)),
        "updated": lambda s, v, value: s.extended.update(v, lambda one: one.assign(value)),
    }
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        for way in ways.values():
            variable = made(strategy, np.zeros(size), aggregation=MEAN)
            view = variable.value()
            for step in range(1, 3 * comm.size + 1):
                late(comm, step)
                assert (view == step - 1).all(), "written before all ranks were there"
                way(strategy, variable, np.full(size, float(step)))
                assert (view == step).all(), "left before all was written"


def test_an_update_that_takes_long_is_waited_for():
    with CentralStorageStrategy() as strategy:
        variable = made(strategy, np.zeros(10))

        def slowly(v):
            for i in range(10):
                v.live()[i] = 1.0
                time.sleep(0.01)

        strategy.extended.update(variable, slowly)
        assert (variable.value() == 1).all()
