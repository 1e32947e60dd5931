"""Communicators over MPI: private, cheap to open and close, with deadlines, for long arrays."""

import contextlib
import hashlib
import os
import resource
import sys
import time

import numpy as np
import pytest

from mpistrat import built_in_sizes
from mpistrat.collectives import Communicator
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long


def mpi():
    """Return mpi4py's module; on the ranks only, since importing it starts MPI."""
    from mpi4py import MPI

    return MPI


# ---------------------------------------------------------------------- the given communicator


@pytest.mark.mpi(ranks=3)
def test_traffic_on_the_given_communicator_is_undisturbed():
    MPI = mpi()  # noqa: N806
    world = MPI.COMM_WORLD
    user = world.Dup()
    right, left = (user.rank + 1) % user.size, (user.rank - 1) % user.size
    # Wildcard receives that are open while our collectives run must get the user's message only.
    sent, got = np.full(1, user.rank), np.full(1, -1)
    receive = user.Irecv(got, MPI.ANY_SOURCE, MPI.ANY_TAG)
    with Communicator(user) as comm:
        for _ in range(20):
            comm.allreduce(np.ones(1000))
            comm.alltoall(np.zeros(user.size))
            comm.allgather_object({"rank": comm.rank})
        comm.fail(ValueError("alike on all ranks"))  # sends notices
        comm.barrier()
        assert not receive.Test()
        assert not user.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
        comm.barrier()
        user.Send(sent, right, tag=5)
        status = MPI.Status()
        receive.Wait(status)
        assert (got[0], status.Get_source(), status.Get_tag()) == (left, left, 5)
        comm.barrier()
    assert not user.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
    assert user.allreduce(1) == user.size  # it was neither freed nor changed
    user.Free()


@pytest.mark.mpi(ranks=3)
def test_error_handler_of_the_given_communicator_is_kept():
    MPI = mpi()  # noqa: N806
    world = MPI.COMM_WORLD
    user = world.Dup()
    user.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    Communicator(user).close()
    assert user.Get_errhandler() == MPI.ERRORS_ARE_FATAL
    user.Free()


@pytest.mark.mpi(ranks=3)
def test_sub_communicators_work_side_by_side():
    MPI = mpi()  # noqa: N806
    world = MPI.COMM_WORLD
    pairs = [(0, 1), (1, 2)]  # rank 1 is in both
    given = [
        world.Split(0 if world.rank in pair else MPI.UNDEFINED, -world.rank) for pair in pairs
    ]
    with contextlib.ExitStack() as stack:
        everyone = stack.enter_context(Communicator(world))
        own = {
            sum(pair): stack.enter_context(Communicator(comm))
            for pair, comm in zip(pairs, given, strict=True)
            if comm != MPI.COMM_NULL
        }
        for ranks, comm in own.items():
            assert (comm.rank, comm.size) == ((ranks + 1) // 2 - world.rank, 2)
            for i in range(10 * ranks):  # the pairs do not make equally many calls
                assert comm.allreduce(world.rank + i) == ranks + 2 * i
        assert everyone.allreduce(len(own)) == 4
        total = everyone.iallreduce(np.full(2000, world.rank))
        inner = [comm.iallreduce(np.full(2000, 1)) for comm in own.values()]
        assert [work.wait()[0] for work in inner] == [2] * len(own)
        assert total.wait()[0] == 3
    for comm in given:
        if comm != MPI.COMM_NULL:
            comm.Free()


@pytest.mark.mpi(ranks=3)
def test_ranks_are_those_of_the_given_communicator():
    world = mpi().COMM_WORLD
    backwards = world.Split(0, key=world.size - world.rank)
    with Communicator(backwards) as comm:
        assert comm.rank == world.size - 1 - world.rank
        gathered = comm.allgather(np.array([world.rank]))
        np.testing.assert_array_equal(gathered, np.arange(world.size)[::-1])
        assert comm.topology.local_size == world.size
    backwards.Free()


# --------------------------------------------------------------------------- open and close


def all_but(free, world):
    """Take the communicators that MPI has left but some: MPICH has 2048, others have no limit."""
    taken = []
    with contextlib.suppress(mpi().Exception):
        while len(taken) < 2048:
            taken.append(world.Dup())
    for one in taken[-free:]:
        one.Free()
    return taken[:-free]


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_many_communicators_one_after_the_other():
    world = mpi().COMM_WORLD
    taken = all_but(60, world)
    try:
        for i in range(100):
            with Communicator(world) as comm:
                if i % 10 == 0:
                    assert comm.allreduce(1) == world.size
    finally:
        for one in taken:
            one.Free()


@takes_long()
@pytest.mark.mpi(ranks=3)
def test_many_communicators_at_once():
    world = mpi().COMM_WORLD
    comms = [Communicator(world) for _ in range(50)]
    works = [comm.iallreduce(np.full(500, i)) for i, comm in enumerate(comms)]
    for i in reversed(range(50)):
        assert works[i].wait()[0] == i * world.size
    for comm in comms:
        comm.close()


@takes_long()
@pytest.mark.mpi(ranks=3)
def test_notices_of_a_closed_communicator_reach_no_later_one():
    world = mpi().COMM_WORLD
    # MPICH gives the context of a freed communicator to the next one, unread messages and all.
    for i in range(6):
        with Communicator(world) as comm:
            comm.fail(ValueError(f"alike on all ranks, {i}"))
            comm.barrier()
        with Communicator(world) as comm:
            if world.rank == i % world.size:
                time.sleep(0.1)  # the others wait long enough to look at their notices
            comm.barrier()


BREAKING = """
import time
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.errors import PeerLostError
comm = Communicator(MPI.COMM_WORLD)
if comm.rank == 1:
    time.sleep(0.3)  # until the others wait in the barrier
    comm.health.break_off(ValueError("given up"))
else:
    try:
        comm.barrier()
    except PeerLostError as error:
        print(error)
start = time.monotonic()
comm.close()
print("closed" if time.monotonic() - start < 1 else "waited")
with Communicator(MPI.COMM_WORLD) as comm:
    print("sum", comm.allreduce(1), flush=True)
"""


@takes_long()
def test_broken_communicator_is_closed_without_waiting_and_another_works():
    job = run_job(["-c", BREAKING], 3)
    assert not job.timed_out, job.output
    for rank, output in enumerate(job.ranks):
        assert "closed\nsum 3\n" in output.stdout, job.output
        assert rank == 1 or "ValueError: given up" in output.stdout, job.output


OPENING = """
import time
from mpi4py import MPI
from mpistrat.collectives import Communicator
if MPI.COMM_WORLD.rank == 1:
    time.sleep(1.6)
else:
    start = time.monotonic()
    try:
        Communicator(MPI.COMM_WORLD)
    except TimeoutError as error:
        waited = time.monotonic() - start
        print(f"after {waited:.0f} s: {type(error).__name__}: {error}", flush=True)
MPI.COMM_WORLD.Abort(7)
"""


@takes_long()
def test_opening_has_a_deadline():
    job = run_job(["-c", OPENING], 2, env={"MPISTRAT_TIMEOUT": "1"})
    expected = "after 1 s: CommunicationTimeoutError: rank 0/2 waited 1 s for all ranks to make"
    assert expected in job.ranks[0].stdout, job.output
    assert not job.timed_out


# -------------------------------------------------------------------------- long and often


@pytest.mark.skipif(
    os.environ.get("MPISTRAT_TESTS_LARGE") != "1",
    reason="takes 5 GB of memory and 10 s; MPISTRAT_TESTS_LARGE=1 pytest -k more_elements runs it",
)
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_more_elements_than_fit_in_an_int():
    world = mpi().COMM_WORLD
    count = 2**31 + 11  # 2 GB a rank; Open MPI refuses such counts in one call
    places = [
        0,
        built_in_sizes.MAX_COUNT - 2,
        built_in_sizes.MAX_COUNT,
        2**31 - 2,
        2**31,
        count - 2,
    ]
    with Communicator(world) as comm:
        array = np.zeros(count, np.uint8)
        for place in places:
            array[place + comm.rank] = 1
        comm.allreduce(array, "or", out=array, timeout=50)
        assert all(array[place] == array[place + 1] == 1 for place in places)
        assert np.count_nonzero(array.view(np.bool_)) == 2 * len(places)


def mixed_call(comm, i):
    """Make the i-th of a mixture of calls; return what all ranks must agree on."""
    count = (1, 10, 300, 5000)[i % 4]
    x = np.full((comm.size, count), i + comm.rank)
    calls = [
        lambda: comm.allreduce(x),
        lambda: comm.allgather(x),
        lambda: comm.bcast(x, i % comm.size),
        lambda: comm.allreduce_many([x, x[0], 1.0]),
        lambda: (comm.reduce(x, root=i % comm.size), 0)[1],
        lambda: (comm.alltoall(x), 0)[1],
        lambda: (comm.scatter(x if comm.rank == 0 else None), 0)[1],
        lambda: (comm.reduce_scatter(x), 0)[1],
        lambda: (comm.gather(x), 0)[1],
        lambda: comm.bcast_object({"i": i}),
        lambda: comm.iallreduce(x, "max").wait(),
        comm.barrier,
    ]
    return calls[i % 12]()


def resident_bytes():
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_soak():
    world = mpi().COMM_WORLD
    with Communicator(world) as comm:
        digest = hashlib.sha256()
        for i in range(500):
            mixed_call(comm, i)
        before = resident_bytes()
        for i in range(2000):
            digest.update(repr(mixed_call(comm, i)).encode())
        grown = resident_bytes() - before
        assert len(set(comm.allgather_object(digest.digest()))) == 1
        assert grown < 2_000_000, f"grew by {grown} bytes in 2000 calls"
