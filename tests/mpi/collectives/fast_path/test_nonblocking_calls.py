"""Short nonblocking calls: over at once where the peers are there, else later."""

import time

import numpy as np
import pytest

from helpers.collectives.fast_path import (
    assert_equal,
    drop,
    fast_calls,
    open_communicator,
    slow,
)
from mpistrat.collectives import Work
from mpistrat.errors import MismatchError, PeerLostError, UsageError

SHORT, LONG = 12, 6 * 20_000  # elements of 8 bytes; a multiple of the ranks


def world():
    from mpi4py import MPI

    return MPI.COMM_WORLD


def calls(comm, x):
    """Yield the arguments of a call of each method."""
    last = comm.size - 1
    yield "allreduce", (x, "max")
    yield "reduce", (x, "sum", last)
    yield "reduce_scatter", (x,)
    yield "bcast", (x, last)
    yield "allgather", (x,)
    yield "gather", (x, last)
    yield "alltoall", (x,)
    yield "scatter", (x if comm.rank == last else None, last)
    yield "barrier", ()


def assert_same(got, want, what):
    if want is None:
        assert got is None, what
    else:
        assert_equal(got, want, what)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("backend", ["shm", "hierarchical"])
def test_short_ones_begin_natively(backend):
    with open_communicator(backend) as comm:
        for length, is_short in ((SHORT, True), (LONG, False)):
            x = np.arange(float(length)) * (comm.rank + 1)
            for method, arguments in calls(comm, x):
                want = slow(comm, *arguments, method=method)
                if method == "scatter":  # ranks guess what they were given last by this root
                    comm.scatter(*arguments)
                before = fast_calls(comm)
                work = getattr(comm, f"i{method}")(*arguments)
                assert isinstance(work, Work)
                assert_same(work.wait(timeout=10.0), want, method)
                assert work.done
                assert_same(work.wait(), want, method)
                is_fast = is_short or method == "barrier"
                assert fast_calls(comm) - before == is_fast, (method, length)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_results_in_out():
    with open_communicator() as comm:
        x = np.arange(float(SHORT)) * (comm.rank + 1)
        for method, arguments in calls(comm, x):
            if method == "barrier":
                continue
            want = slow(comm, *arguments, method=method)
            out = None if want is None else np.empty_like(want)
            got = getattr(comm, f"i{method}")(*arguments, out=out).wait()
            assert got is out, method
            if want is not None:
                assert_equal(got, want, method)
        assert comm.iallreduce(x, out=x).wait() is x


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_late_peer_is_not_waited_for():
    with open_communicator() as comm:
        x = np.full(SHORT, comm.rank + 1.0)
        for turn in range(8):
            world().Barrier()
            if comm.rank == turn % 2:
                start = time.monotonic()
                works = [comm.iallreduce(x), comm.ibarrier(), comm.iallgather(x)]
                assert time.monotonic() - start < 1.0
                assert not any(work.done for work in works)
                assert not any(work.test() for work in works)
                world().Barrier()
            else:
                world().Barrier()
                works = [comm.iallreduce(x), comm.ibarrier(), comm.iallgather(x)]
            gathered, _, total = (work.wait(timeout=10.0) for work in reversed(works))
            assert (total == 3.0).all()
            assert (gathered == [1.0] * SHORT + [2.0] * SHORT).all()


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_they_keep_their_order_with_other_calls():
    with open_communicator() as comm:
        x = np.arange(float(SHORT))
        for turn in range(60):
            if comm.rank == turn % comm.size:
                time.sleep(0.001 * (turn % 4))
            works = [comm.iallreduce(x + turn + k) for k in range(turn % 5)]
            long = comm.iallreduce(np.full(LONG, float(turn)))
            works.append(comm.iallreduce(x + turn + len(works)))
            assert comm.allreduce(np.array([turn])) == comm.size * turn
            for k, work in reversed(list(enumerate(works))):
                assert_equal(work.wait(), (x + turn + k) * comm.size, f"{turn} {k}")
            assert (long.wait() == turn * comm.size).all()
        assert [one.state for one in comm.records()[-20:]] == ["done"] * 20


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_calls_that_differ_are_errors_of_wait_on_all_ranks():
    with open_communicator() as comm:
        work = comm.iallreduce(np.ones(2 if comm.rank == 1 else 1))
        with pytest.raises(MismatchError, match=r"shape=\(1,\)[^$]*shape=\(2,\)"):
            work.wait(timeout=10.0)
        work = comm.ibarrier() if comm.rank else comm.ibcast(np.ones(3))
        with pytest.raises(MismatchError, match="barrier"):
            work.wait(timeout=10.0)
        assert comm.iallreduce(np.ones(1)).wait() == comm.size


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_wrong_arguments_are_errors_of_wait_on_all_ranks():
    with open_communicator() as comm:
        root = 7 if comm.rank else 0
        with pytest.raises((MismatchError, UsageError), match="root"):
            comm.ireduce(np.ones(3), "sum", root).wait(timeout=10.0)
        with pytest.raises(TypeError, match="timeout"):
            comm.iallreduce(np.ones(3), timeout=1.0)
        assert comm.iallreduce(np.ones(1)).wait() == comm.size


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_peer_that_fails_meanwhile():
    comm = open_communicator()
    if comm.rank == 0:
        work = comm.iallreduce(np.ones(2))
        world().Barrier()
        with pytest.raises(PeerLostError, match="of its own"):
            work.wait(timeout=10.0)
    else:
        world().Barrier()
        time.sleep(0.05)
        comm.end(ValueError("of its own"))
    drop(comm)
