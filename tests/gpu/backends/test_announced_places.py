"""All-reduces of registered memory, whose headers tell the other ranks where the arrays are."""

import os
from pathlib import Path

import pytest

from helpers.gpu.ranks import communicator_on_gpus, fill_late
from mpistrat.collectives.backends.gpu.carriers.registered_places import RegisteredPlaces
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import with_all

COUNT = 3000
TESTS = Path(__file__).parents[2]


def registered(comm, cupy, length=COUNT):
    return comm.empty(length, "float32", device=f"GPU:{cupy.cuda.Device().id}")


def count_meetings(patch):
    """Return a list that grows with each meeting in which ranks tell places by themselves."""
    meetings = []
    places = RegisteredPlaces.exchange

    def counted(*arguments):
        meetings.append(arguments)
        return (yield from places(*arguments))

    patch.setattr(RegisteredPlaces, "exchange", counted)
    return meetings


def assert_sum(comm, cupy, begin, out):
    """Check an all-reduce of what each rank has from `begin` on, into `out`."""
    everyone = [sample("float32", (100,), rank) for rank in range(comm.size)]
    mine = begin[:100]
    mine.set(everyone[comm.rank])
    comm.allreduce(mine, out=out[:100])
    assert_same(out[:100].get(), expected_reduction("sum", everyone), "sum")


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)
def test_equal_places_are_told_by_headers():
    with (
        pytest.MonkeyPatch.context() as patch,
        communicator_on_gpus("peer_memory") as (comm, cupy),
    ):
        one, other = registered(comm, cupy), registered(comm, cupy)
        plain, meetings = cupy.empty_like(one), count_meetings(patch)
        for begin, out in ((one, one), (one, other), (other[7:], other[7:]), (plain, plain)):
            assert_sum(comm, cupy, begin, out)
        assert meetings == []
        for begin, out in (
            (one[comm.rank :], one[comm.rank :]),
            (one[5:], other[6:]),
            (plain, one),
            (one, plain if comm.rank else one),
        ):
            assert_sum(comm, cupy, begin, out)
            assert len(meetings) == 1
            meetings.clear()


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)
def test_what_is_written_late_is_waited_for():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        mine = registered(comm, cupy)
        for late in range(comm.size):
            mine.fill(comm.rank)
            cupy.cuda.get_current_stream().synchronize()
            if comm.rank == late:
                fill_late(mine, comm.rank + 10)
            comm.allreduce(mine, out=mine)
            assert set(mine.get()) == {sum(range(comm.size)) + 10}


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_what_was_told_counts_for_one_call_only():
    with (
        pytest.MonkeyPatch.context() as patch,
        communicator_on_gpus("peer_memory") as (comm, cupy),
    ):
        count_meetings(patch)
        mine = registered(comm, cupy)
        assert comm.allreduce(mine[:0]).shape == (0,)
        mine.fill(comm.rank + 1)
        part = mine[comm.rank * 10 :][:20]
        for _ in range(2):
            part.fill(comm.rank + 1)
            [total] = comm.allreduce_many([part], out=[part])
            assert (total.get() == 3).all()
            assert_sum(comm, cupy, mine, mine)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_another_gpu_than_in_the_call_before():
    with (
        pytest.MonkeyPatch.context() as patch,
        communicator_on_gpus("peer_memory", device=0) as (comm, cupy),
    ):
        if cupy.cuda.runtime.getDeviceCount() < 2:
            pytest.skip("needs two GPUs")
        count_meetings(patch)
        arrays = []
        for device in (0, 1):
            with cupy.cuda.Device(device):
                arrays.append(registered(comm, cupy))
        for turn in range(6):
            device = turn // 2 % 2 if comm.rank else turn % 2
            with cupy.cuda.Device(device):
                mine = arrays[device]
                mine.fill(comm.rank + 1)
                assert_sum(comm, cupy, mine, mine)


DEADLINE = """
import cupy
from helpers.gpu.ranks import WaitingKernel
from mpistrat.collectives import Communicator
from mpistrat.errors import CommunicationTimeoutError
comm = Communicator()
mine = comm.empty(3000, "float32", device="GPU:0")
comm.allreduce(mine, out=mine)
if comm.rank:
    WaitingKernel(cupy.cuda.get_current_stream())
try:
    comm.allreduce(mine, out=mine, timeout=1.0)
except CommunicationTimeoutError as error:
    print(comm.rank, error, flush=True)
"""


@pytest.mark.deadline(60)
def test_the_error_of_a_deadline_tells_of_a_gpu_that_is_not_done():
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    result = run_job(["-c", DEADLINE], 2, timeout_s=50, env={"PYTHONPATH": path})
    assert "0 call 4, allreduce" in result.ranks[0].stdout
    assert "all ranks wait, but the GPU of this rank has not ended" in result.ranks[1].stdout


GIVEN_UP = """
import time
import cupy
from mpistrat.collectives import Communicator
from mpistrat.errors import MpistratError
comm = Communicator()
mine = comm.empty(50_000, "float32", device="GPU:0")
for _ in range(2):
    mine.fill(1)
    comm.allreduce(mine, out=mine)
if comm.rank == 0:
    time.sleep(1.5)
try:
    comm.allreduce(mine, out=mine, timeout=0.3 if comm.rank else 10.0)
except MpistratError as error:
    print(type(error).__name__, flush=True)
mine.fill(42)
cupy.cuda.get_current_stream().synchronize()
time.sleep(3.0 if comm.rank else 0.5)
print(set(mine.get().tolist()), flush=True)
"""


@pytest.mark.deadline(60)
def test_a_late_rank_does_not_write_to_who_has_given_up():
    carrier = {"MPISTRAT_GPU_CARRIER": "peer_memory"}
    ranks = run_job(["-c", GIVEN_UP], 2, timeout_s=50, env=carrier).ranks
    assert ranks[0].stdout.split("\n")[:1] == ["PeerLostError"]
    assert ranks[1].stdout.split("\n")[:2] == ["CommunicationTimeoutError", "{42.0}"]
