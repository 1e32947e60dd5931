"""Calls that follow each other by themselves while Python computes (kernels/calls/queue.h)."""

import contextlib
import importlib
import time
from unittest import mock

import numpy as np
import pytest

from helpers.pretend.nodes import pretended_nodes
from mpistrat.collectives import Communicator, shutdown
from mpistrat.errors import (
    CommunicationError,
    CommunicationTimeoutError,
    MismatchError,
    PeerLostError,
)
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.sets import takes_long, with_all

COUNT = 70_011  # float64: more than two chunks
DEADLINE_S = 30.0


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


# Ranks a node, or None for one node.
NODES = pytest.mark.parametrize("node_size", [None, 1, 2], ids=["shm", "1 a node", "2 a node"])


@contextlib.contextmanager
def communicator(node_size):
    # Two ranks on two nodes, and three on two, show what is between nodes.
    if node_size not in (None, world().Get_size() - 1) and not with_all():
        pytest.skip("repeats; MPISTRAT_TESTS_ALL=1 runs it")
    if node_size is None:
        with Communicator(world(), "shm") as comm:
            yield comm
    else:
        with pretended_nodes(node_size), Communicator(world(), "hierarchical") as comm:
            yield comm


def leave(comm):
    """Drop a communicator that the ranks cannot close together; the job is to end well."""
    comm.health.closed = True
    shutdown.forget(comm)


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


def calls_of_all_kinds(comm, rows):
    """Yield, for each kind of call, what starts it and what it is to return here."""
    rank, size = comm.rank, comm.size
    last = size - 1
    arrays = [sample("float64", (rows,), r) for r in range(size)]
    mine, everything = arrays[rank], np.concatenate(arrays)
    total = expected_reduction("sum", arrays)
    pieces = [np.array_split(array, size)[rank] for array in arrays]
    yield lambda: comm.iallreduce(mine), total
    yield lambda: comm.ireduce(mine, "sum", last), total if rank == last else None
    yield lambda: comm.ireduce_scatter(mine), expected_reduction("sum", pieces)
    yield lambda: comm.ibcast(mine, last), arrays[last]
    yield lambda: comm.iallgather(mine), everything
    yield lambda: comm.igather(mine, last), everything if rank == last else None
    yield lambda: comm.ialltoall(mine), np.concatenate(pieces)
    yield (
        lambda: comm.iscatter(mine if rank == last else None, last),
        np.array_split(arrays[last], size)[rank],
    )
    yield comm.ibarrier, None
    yield lambda: comm.iallreduce_many([mine, mine[:1]]), [total, total[:1]]


def assert_results(works, wanted):
    for number, (work, want) in enumerate(zip(works, wanted, strict=True)):
        found = work.wait()
        if want is None:
            assert found is None, number
        else:
            pairs = zip(found, want, strict=True) if isinstance(want, list) else [(found, want)]
            for one, other in pairs:
                assert_same(one, other, str(number))


@NODES
@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("rows", [6, COUNT // 6 * 6])
def test_calls_of_all_kinds_end_while_python_computes(node_size, rows):
    with communicator(node_size) as comm:
        starts, wanted = zip(*calls_of_all_kinds(comm, rows), strict=True)
        comm.scatter(
            np.zeros(rows) if comm.rank == comm.size - 1 else None, comm.size - 1
        )  # is known
        works = [start() for start in starts]
        busy_until(lambda: not comm.backend.fast.is_busy)
        if rows > 6:  # short ones may be over when they are started
            assert not any(work.done for work in works), "nobody has looked yet"
        done = [(record.op, record.state) for record in comm.records()[-len(works) :]]
        assert {state for _, state in done} == {"done"}
        assert [op for op, _ in done][-2:] == ["barrier", "allreduce_many"]
        assert_results(works, wanted)


@NODES
@pytest.mark.mpi(ranks=[2, 3])
def test_calls_of_several_steps_hold_those_behind_them(node_size):
    """Lengths that differ, pieces that only the root knows, two dtypes: Python has to go on."""
    with communicator(node_size) as comm:
        mine = np.full(comm.rank + 1, float(comm.rank))
        everything = np.concatenate([np.full(r + 1, float(r)) for r in range(comm.size)])
        rows = np.arange(2.0 * comm.size)
        ones = np.ones(COUNT)
        works = [
            comm.iallreduce(ones),
            comm.iallgather(mine),
            comm.iallreduce(ones),
            comm.iscatter(rows if comm.rank == 0 else None),
            comm.ialltoall(rows, [2 * comm.size] + [0] * (comm.size - 1)),
            comm.iallreduce_many([ones, ones.astype(int)]),
            comm.iallreduce(ones, "mean"),
        ]
        total = comm.allreduce(ones)
        assert all(work.done for work in works)
        size = float(comm.size)
        assert (total == size).all()
        assert (works[0].wait() == size).all()
        assert (works[1].wait() == everything).all()
        assert (works[2].wait() == size).all()
        assert (works[3].wait() == rows[2 * comm.rank :][:2]).all()
        assert works[4].wait().tolist() == (rows.tolist() * comm.size if comm.rank == 0 else [])
        assert all((one == size).all() for one in works[5].wait())
        assert (works[6].wait() == 1.0).all()
        assert {record.state for record in comm.records()} == {"done"}


@NODES
@pytest.mark.mpi(ranks=[2, 3])
def test_what_is_scattered_may_change(node_size):
    """Ranks guess that it is what it was the last time; by root and axis."""
    with communicator(node_size) as comm:
        forms = [((7, 2), "float32"), ((7, 2), "float32"), ((7, 2), "int8"), ((0, 3), "int8")]
        whole = [sample(dtype, shape, i) for i, (shape, dtype) in enumerate([*forms, *forms])]
        for root in range(2):
            for axis in (0, 1, -1):
                works = [
                    comm.iscatter(a if comm.rank == root else None, root, axis) for a in whole
                ]
                for array, work in zip(whole, works, strict=True):
                    mine = np.array_split(array, comm.size, axis)[comm.rank]
                    assert_same(work.wait(), np.ascontiguousarray(mine), "scattered")


@NODES
@pytest.mark.mpi(ranks=[2, 3])
def test_calls_that_differ_in_more_than_lengths(node_size):
    """One rank's lengths differ, and its dtype: that is no ragged call."""
    with communicator(node_size) as comm:
        mine = np.ones(5 + comm.rank, ["float32", "float64"][comm.rank == 1])
        works = [
            comm.iallgather(mine),
            comm.iallgather(mine.astype(int)),
            comm.ialltoall(mine[:3]) if comm.size == 3 else comm.ialltoall(mine[:2]),
        ]
        for work, is_fine in zip(works, [False, True, False], strict=True):
            if is_fine:
                assert len(work.wait()) == 5 * comm.size + sum(range(comm.size))
            else:
                with pytest.raises(MismatchError, match=r"float64.*\n|float32"):
                    work.wait()
        assert comm.allreduce(1.0) == comm.size


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
        leave(comm)


@NODES
@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("name", ["iallgather", "igather", "ialltoall"])
def test_a_failure_told_in_a_call_of_unequal_lengths_does_not_part_the_ranks(node_size, name):
    """What each rank has shown counts: all go on with the lengths, or none does."""
    with communicator(node_size) as comm:
        blocks = [np.full(r + 1, float(r)) for r in range(comm.size)]
        mine = np.tile(blocks[comm.rank], comm.size if name == "ialltoall" else 1)
        if comm.rank == 0:
            work = getattr(comm, name)(mine)
            time.sleep(0.1)  # its line is shown by then, without the failure
            comm.fail(ValueError("mine"))
            world().Barrier()
        else:
            world().Barrier()
            work = getattr(comm, name)(mine)
        with contextlib.suppress(PeerLostError, MismatchError):
            found = work.wait(timeout=10.0)
            if found is None:
                assert name == "igather"
            else:
                assert_same(found, np.concatenate(blocks), name)
        leave(comm)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_an_interrupted_test_gives_up_its_call():
    """Ctrl-C ends the call's steps, so what a later wait returned would not be its result."""
    comm = Communicator(world(), "shm")
    if comm.rank == 0:
        work = comm.iallgather(np.ones(COUNT))  # not short, so that Python ends it
        allgather = importlib.import_module("mpistrat.collectives.operations.allgather")
        strikes = mock.patch.object(allgather, "from_rows", side_effect=KeyboardInterrupt)
        with strikes, pytest.raises(KeyboardInterrupt):
            busy_until(work.test)
        with pytest.raises(CommunicationError, match="interrupted"):
            work.wait()
    else:
        with pytest.raises(PeerLostError, match="KeyboardInterrupt"):
            np.array_equal(comm.iallgather(np.ones(COUNT)).wait(), comm.allreduce(1.0))
    world().Barrier()
    leave(comm)


@takes_long()
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
    leave(comm)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_loop_of_tests_ends_when_the_peer_has_failed():
    comm = Communicator(world(), "shm")
    if comm.rank == 0:
        work = comm.iallreduce(np.ones(COUNT))
        with pytest.raises(PeerLostError, match="mine"):
            busy_until(work.test)
    else:
        comm.health.break_off(ValueError("mine"))
    world().Barrier()
    leave(comm)


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_deadline_names_who_is_missing():
    comm = Communicator(world(), "shm")
    if comm.rank == 0:
        works = [comm.iallreduce(np.ones(COUNT)) for _ in range(3)]
        with pytest.raises(CommunicationTimeoutError) as caught:
            works[1].wait(timeout=0.5)
        assert caught.value.missing == (1,)
        assert not comm.backend.fast.is_busy or comm.health.broken
    world().Barrier()
    leave(comm)
