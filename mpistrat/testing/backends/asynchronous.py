"""Conformance of backends: calls that are started, and waited for later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpistrat.collectives.communicator import Communicator
from mpistrat.collectives.progress.work import Work
from mpistrat.errors import UsageError
from mpistrat.testing.backends.cases import BackendCases

__all__ = ["AsyncCases"]


def _start_one_of_each(comm: Communicator, x: Any) -> list[Work[Any]]:
    only_root = x if comm.rank == 0 else None
    return [
        *(comm.iallreduce(x), comm.iallreduce(x, "max"), comm.ireduce(x, "mean", 0)),
        *(comm.ibcast(x), comm.iallgather(x), comm.igather(x), comm.iscatter(only_root)),
        *(comm.ireduce_scatter(x), comm.ialltoall(x), comm.ibarrier()),
    ]


def _call_one_of_each(comm: Communicator, x: Any) -> list[Any]:
    only_root = x if comm.rank == 0 else None
    results = [
        *(comm.allreduce(x), comm.allreduce(x, "max"), comm.reduce(x, "mean", 0)),
        *(comm.bcast(x), comm.allgather(x), comm.gather(x), comm.scatter(only_root)),
        *(comm.reduce_scatter(x), comm.alltoall(x)),
    ]
    comm.barrier()
    return [*results, None]


class AsyncCases(BackendCases):
    """Nonblocking calls: `Work`, in any order of waits."""

    def test_nonblocking_calls_give_what_the_others_give(self, size: int) -> None:
        """Waited for in the order of their start, backwards, or each at once."""

        def body(comm: Communicator) -> None:
            for width in (2, 5000):
                x = np.random.default_rng(comm.rank).normal(size=(comm.size * 2, width))
                want = _call_one_of_each(comm, x)
                for order in (1, -1):
                    works = _start_one_of_each(comm, x)
                    pairs = list(zip(works, want, strict=True))[::order]
                    for work, value in pairs:
                        np.testing.assert_array_equal(work.wait(), value)
                    for work, value in pairs:  # and again, as often as one likes
                        np.testing.assert_array_equal(work.wait(), value)
                        assert work.test()
                        assert work.done

        self.run(size, body)

    def test_test_alone_finishes_the_call(self, size: int) -> None:
        """Polling without a wait is enough, also for a call that is behind others."""

        def body(comm: Communicator) -> None:
            works = [comm.iallreduce(np.full(3000, float(i))) for i in range(5)]
            while not works[-1].test():
                pass
            for i, work in enumerate(works):
                assert work.done
                np.testing.assert_array_equal(work.wait(), np.full(3000, float(i * comm.size)))

        self.run(size, body)

    def test_calls_behind_started_ones_keep_their_place(self, size: int) -> None:
        """A blocking call after an asynchronous one is also later on every other rank."""

        def body(comm: Communicator) -> None:
            for _ in range(20):
                first = comm.iallreduce(np.full(2000, comm.rank))
                blocking = comm.allreduce(np.full(2000, 1))
                last = comm.iallgather(np.array([comm.rank]))
                assert blocking[0] == comm.size
                np.testing.assert_array_equal(last.wait(), np.arange(comm.size))
                assert first.wait()[0] == sum(range(comm.size))

        self.run(size, body)

    def test_ranks_may_wait_in_orders_of_their_own(self, size: int) -> None:
        """Only the order of the starts must agree."""

        def body(comm: Communicator) -> None:
            works = [comm.iallreduce(np.full(500 * i, i)) for i in range(6)]
            order = np.random.default_rng(comm.rank).permutation(6)
            for i in order:
                np.testing.assert_array_equal(works[i].wait(), np.full(500 * i, i * comm.size))

        self.run(size, body)

    def test_work_left_alone_is_finished_by_the_next_call(self, size: int) -> None:
        """Nobody need wait for a work."""

        def body(comm: Communicator) -> None:
            out = np.zeros(4000)
            comm.iallreduce(np.ones(4000), out=out)
            comm.barrier()
            np.testing.assert_array_equal(out, np.full(4000, float(comm.size)))

        self.run(size, body)

    def test_refused_call_raises_in_its_wait_and_disturbs_no_other(self, size: int) -> None:
        """Errors belong to their own work."""

        def body(comm: Communicator) -> None:
            before = comm.iallreduce(1)
            bad = comm.iallgather(np.zeros(2), axis=5)
            after = comm.iallreduce(np.ones(1000))
            np.testing.assert_array_equal(after.wait(), np.full(1000, float(comm.size)))
            for _ in range(2):
                with pytest.raises(UsageError, match="axis=5 is out of range"):
                    bad.wait()
            assert before.wait() == comm.size

        self.run(size, body)
