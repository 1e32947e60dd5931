"""All-reduces that follow each other by themselves while Python computes (kernels/shm/queue.h)."""

import contextlib
import time

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import CommunicationTimeoutError, MismatchError, PeerLostError
from mpistrat.testing.backends.pretending import pretended_nodes
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample

COUNT = 30_011
DEADLINE_S = 30.0


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


# Ranks a node, or None for one node.
NODES = pytest.mark.parametrize("node_size", [None, 1, 2], ids=["shm", "1 a node", "2 a node"])


@contextlib.contextmanager
def communicator(node_size):
    if node_size is None:
        with Communicator(world(), "shm") as comm:
            yield comm
    else:
        with pretended_nodes(node_size), Communicator(world(), "hierarchical") as comm:
            yield comm


def busy_until(condition):
    """Compute without a pause, and without giving the interpreter away for long."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the calls did not go on while Python computed"
        sum(range(1000))


@NODES
@pytest.mark.mpi(ranks=[2, 3])
def test_all_end_while_python_computes(node_size):
    with communicator(node_size) as comm:
        works = [comm.iallreduce(np.full(COUNT, comm.rank + i, np.float32)) for i in range(8)]
        busy_until(lambda: not comm.backend.fast.is_busy)
        assert not any(work.done for work in works), "nobody has looked yet"
        others = sum(range(comm.size))
        for i, work in enumerate(works):
            assert (work.wait() == others + comm.size * i).all()
        assert [record.state for record in comm.records()[-8:]] == ["done"] * 8


@NODES
@pytest.mark.mpi(ranks=[2, 3])
def test_other_calls_wait_for_their_turn(node_size):
    with communicator(node_size) as comm:
        mine = sample("float64", (COUNT,), comm.rank)
        arrays = [sample("float64", (COUNT,), rank) for rank in range(comm.size)]
        first, second = comm.iallreduce(mine), comm.iallreduce(mine, "max")
        gathered = comm.iallgather(mine)
        third = comm.iallreduce(mine, "min")
        total = comm.allreduce(mine)
        assert all(work.done for work in (first, second, gathered, third))
        assert_same(first.wait(), expected_reduction("sum", arrays), "sum")
        assert_same(second.wait(), expected_reduction("max", arrays), "max")
        assert_same(third.wait(), expected_reduction("min", arrays), "min")
        assert_same(gathered.wait(), np.concatenate(arrays), "gathered")
        assert_same(total, expected_reduction("sum", arrays), "blocking")


@NODES
@pytest.mark.mpi(ranks=[2, 3])
def test_calls_that_differ_and_those_behind_them(node_size):
    """The call that differs is everyone's error; the next ones are carried out."""
    with communicator(node_size) as comm:
        is_last = comm.rank == comm.size - 1
        ones = np.ones(COUNT)
        works = [
            comm.iallreduce(ones),
            comm.iallreduce(ones, "max" if is_last else "sum"),
            comm.iallreduce(ones),
            comm.iallreduce(ones[: 5 if is_last else 6]),
            comm.iallreduce(ones, "mean"),
        ]
        busy_until(works[0].test)
        assert works[0].wait()[-1] == comm.size
        with pytest.raises(MismatchError, match=r"max.*\n|sum"):
            works[1].wait()
        assert works[2].wait()[0] == comm.size
        with pytest.raises(MismatchError):
            works[3].wait()
        assert works[4].wait()[-1] == 1.0
        assert comm.allreduce(1.0) == comm.size


@NODES
@pytest.mark.mpi(ranks=[2, 3])
def test_ranks_whose_calls_go_different_ways(node_size):
    """One rank's arrays are not contiguous, so its calls need Python; the data is the same."""
    with communicator(node_size) as comm:
        arrays = [sample("float32", (COUNT, 2), rank) for rank in range(comm.size)]
        mine = arrays[comm.rank]
        if comm.rank == 1:
            mine = np.asfortranarray(mine)
        works = [comm.iallreduce(mine, op) for op in ("sum", "max", "min")]
        for op, work in zip(("sum", "max", "min"), works, strict=True):
            assert_same(np.ascontiguousarray(work.wait()), expected_reduction(op, arrays), op)


@pytest.mark.mpi(ranks=2)
def test_results_in_place_and_dropped_works():
    with Communicator(world(), "shm") as comm:
        data = np.full(COUNT, 1.0 + comm.rank)
        comm.iallreduce(data, out=data)
        for _ in range(20):
            comm.iallreduce(np.ones(COUNT))  # neither its array nor its result is held by us
        work = comm.iallreduce(np.ones(3))
        assert work.wait()[0] == 2.0
        assert (data == 3.0).all()


@NODES
@pytest.mark.mpi(ranks=2)
def test_a_failure_told_while_a_call_is_under_way_does_not_change_its_line(node_size):
    with communicator(node_size) as comm:
        if comm.rank == 0:
            work = comm.iallreduce(np.ones(4))
            time.sleep(0.1)  # its line is shown by then, or shows the failure, which all then see
            comm.fail(ValueError("mine"))
            world().Barrier()
        else:
            world().Barrier()
            work = comm.iallreduce(np.ones(4))
        # Whether the notice or the call comes first, nobody waits, and no result is wrong.
        with contextlib.suppress(PeerLostError, MismatchError):
            assert work.wait(timeout=10.0)[0] == 2.0
        comm.gate.closed = True


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("op", ["sum", "bcast"])
def test_who_gave_up_takes_no_further_part(op):
    """Its arrays are its own again: what it writes to them must not get to a peer that comes."""
    comm = Communicator(world(), "shm")
    data = np.ones(COUNT)
    if comm.rank == 0:
        work = comm.iallreduce(data) if op == "sum" else comm.ibcast(data, 0)
        with pytest.raises(CommunicationTimeoutError):
            work.wait(timeout=0.3)
        data[:] = 1000.0
        world().Barrier()
    else:
        world().Barrier()
        call = comm.allreduce if op == "sum" else comm.bcast
        with pytest.raises(PeerLostError):
            call(data, timeout=20.0)
    comm.gate.closed = True


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_loop_of_tests_ends_when_the_peer_has_failed():
    comm = Communicator(world(), "shm")
    if comm.rank == 0:
        work = comm.iallreduce(np.ones(COUNT))
        with pytest.raises(PeerLostError, match="mine"):
            busy_until(work.test)
    else:
        comm.gate.break_off(ValueError("mine"))
    world().Barrier()
    comm.gate.closed = True


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_deadline_names_who_is_missing():
    comm = Communicator(world(), "shm")
    if comm.rank == 0:
        works = [comm.iallreduce(np.ones(COUNT)) for _ in range(3)]
        with pytest.raises(CommunicationTimeoutError) as caught:
            works[1].wait(timeout=0.5)
        assert caught.value.missing == (1,)
        assert not comm.backend.fast.is_busy or comm.gate.broken
    world().Barrier()
    comm.gate.closed = True
