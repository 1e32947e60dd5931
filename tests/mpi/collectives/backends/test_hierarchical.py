"""Several nodes, pretended on one machine: any placement, equal bits, mismatches, lost ranks."""

import contextlib
import hashlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from helpers.pretend.nodes import pretended_nodes
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.mpi_support.nodes import Nodes
from mpistrat.errors import MismatchError
from mpistrat.testing.backends.cases import run_body, setting
from mpistrat.testing.backends.properties import CHECKS, random_case
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.launcher import RunningJob, run_job
from mpistrat.testing.sets import repeats, takes_long, with_all

ROOT = Path(mpistrat.__file__).parents[1]
PATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

# Where the ranks of a communicator are: ranks of the job in its order, and ranks a node.
PLACEMENTS = {
    "consecutive": ([0, 1, 2, 3], 2),
    "round robin": ([0, 2, 1, 3], 2),
    "three and one": ([0, 1, 2, 3], 3),
    "one among three": ([0, 3, 2, 1], 3),
    "one and two, backwards": ([3, 1, 0], 2),
    "orders that differ": ([0, 2, 3, 1], 2),
    "one each": ([1, 3, 0, 2], 1),
}
COUNTS = (1, 700, 5_000, 70_001, 300_007)  # short, in few steps, in one turn, in many


@contextlib.contextmanager
def placed(ranks, node_size):
    """Yield a communicator of some of the job's ranks; None on the others."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    is_in = world.rank in ranks
    comm = world.Split(0 if is_in else MPI.UNDEFINED, ranks.index(world.rank) if is_in else 0)
    with pretended_nodes(node_size):
        yield comm if is_in else None
    if is_in:
        comm.Free()


def check_all(comm, count, dtype):
    everyone = [sample(dtype, (count,), rank) for rank in range(comm.size)]
    mine, root = everyone[comm.rank], count % comm.size
    for op in ("sum", "max", "mean"):
        total = expected_reduction(op, everyone)
        what = f"{op} of {count} {dtype}"
        assert_same(comm.allreduce(mine, op), total, what)
        got = comm.reduce(mine, op, root)
        if comm.rank == root:
            assert_same(got, total, what)
        part = np.array_split(total, comm.size)[comm.rank]
        assert_same(comm.reduce_scatter(mine, op), part, what)
    assert_same(comm.bcast(mine, root), everyone[root], "bcast")
    ragged = [array[: count * (rank % 3) // 2] for rank, array in enumerate(everyone)]
    joined = np.concatenate(ragged)
    assert_same(comm.allgather(ragged[comm.rank]), joined, "allgather")
    got = comm.gather(ragged[comm.rank], root)
    if comm.rank == root:
        assert_same(got, joined, "gather")


@takes_long()
@pytest.mark.mpi(ranks=4, timeout_s=40)
@pytest.mark.parametrize("name", PLACEMENTS if with_all() else list(PLACEMENTS)[::2])
def test_every_placement_gives_results_in_rank_order(name):
    with placed(*PLACEMENTS[name]) as comm:
        if comm is not None:
            with Communicator(comm, "hierarchical") as communicator:
                assert communicator.backend.name == "hierarchical"
                assert communicator.topology.num_nodes > 1
                for count in COUNTS:
                    for dtype in ("float32", "int16", "bfloat16"):
                        check_all(communicator, count, dtype)


@takes_long()
@pytest.mark.mpi(ranks=4, timeout_s=40)
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_collective_agrees_with_numpy(name):
    check = next(check for check in CHECKS if check.__name__ == name)
    random = np.random.default_rng(2027)

    def body(comm):
        for _ in range(60):
            check(comm, random_case(random))

    with placed([2, 0, 1], 2) as comm, setting("RING_BYTES", 16):
        if comm is not None:
            run_body(comm, "hierarchical", body)


@takes_long()
@pytest.mark.mpi(ranks=4, timeout_s=40)
def test_same_bits_on_all_ranks_and_in_every_run():
    with placed([0, 2, 1, 3], 3) as comm, Communicator(comm, "hierarchical") as communicator:
        delays = np.random.default_rng(communicator.rank)
        for dtype in (np.float32, np.float16):
            for count in (2_000, 60_001, 200_003):
                draw = np.random.default_rng(17 + communicator.rank)
                x = draw.normal(size=count).astype(dtype)
                seen = set()
                for _ in range(20):
                    time.sleep(delays.uniform(0, 3e-3))
                    total = communicator.allreduce(x)
                    seen |= set(
                        communicator.allgather_object(hashlib.sha256(total.tobytes()).digest())
                    )
                assert len(seen) == 1, (dtype, count)


@pytest.mark.mpi(ranks=4)
def test_nan_and_signs_of_zero_are_as_in_numpy():
    with pretended_nodes(2), Communicator(backend="hierarchical") as comm:
        for count in (3, 1_500, 100_000):
            x = np.full(count, -0.0 if comm.rank % 2 else 0.0, np.float32)
            x[comm.rank % count] = np.nan
            for op in ("min", "max"):
                got = comm.allreduce(x, op)
                lost = [rank % count for rank in range(comm.size)]
                assert np.isnan(got[lost]).all()
                rest = np.delete(got, lost)
                assert not np.signbit(rest).any()
                assert not rest.any()


@pytest.mark.mpi(ranks=4)
@pytest.mark.parametrize("inline_ranks", [32, 1], ids=["with payloads", "without"])
def test_unequal_calls_are_seen_by_every_rank(inline_ranks):
    def body(comm):
        for odd in range(comm.size):
            count = 1000 if comm.rank == odd else 1001
            with pytest.raises(MismatchError, match=rf"rank {odd} \(world rank \d\): .*\(1000,\)"):
                comm.allreduce(np.ones(count))
            assert comm.allreduce(1) == comm.size
            assert comm.allgather(np.zeros(comm.rank)).size == 6

    with setting("INLINE_MAX_RANKS", inline_ranks), placed([0, 2, 1, 3], 2) as comm:
        run_body(comm, "hierarchical", body)


@pytest.mark.mpi(ranks=4)
@pytest.mark.parametrize("count", [10, 100_000])
def test_a_mismatch_names_every_ranks_call_and_delivers_nothing(count):
    """Short arrays travel with the lines, long ones after them; ranks 0 and 1 are one node."""
    with pretended_nodes(2), Communicator(backend="hierarchical") as comm:
        out = np.full(count, -1.0)
        ops = ["sum", "sum", "max", "min"]
        with pytest.raises(MismatchError) as caught:
            comm.allreduce(np.ones(count), ops[comm.rank], out=out)
        for rank, op in enumerate(ops):
            assert f"allreduce(op={op}" in caught.value.calls[rank]
        assert (out == -1).all()
        assert comm.allreduce(1) == comm.size


@takes_long()
@pytest.mark.mpi(ranks=3)
@pytest.mark.parametrize("node_size", [1, 2])
def test_a_call_goes_on_while_python_holds_the_gil(node_size):
    with pretended_nodes(node_size), Communicator(backend="hierarchical") as comm:
        wire = comm.backend.native
        assert comm.backend.capabilities().asynchronous
        for count in (10, 1 << 20):
            work = comm.iallreduce(np.full(count, comm.rank, np.float32))
            end = time.monotonic() + 20
            while not wire.is_over and time.monotonic() < end:
                pass  # neither the work nor another call is asked: nothing goes on by Python
            assert wire.is_over
            np.testing.assert_array_equal(work.wait(), np.full(count, 3, np.float32))


def arguments_and_result(comm, name, count):
    """Return what this rank brings to a call of blocks of `count` elements, and what it gets."""
    root = comm.size - 1
    mine = np.full(count, comm.rank, np.float32)
    everyone = np.repeat(np.arange(comm.size, dtype=np.float32), count)
    if name == "gather":
        return (mine, root), everyone if comm.rank == root else None
    if name == "scatter":
        return (everyone if comm.rank == root else None, root), mine
    if name == "alltoall":
        return (np.repeat(mine, comm.size),), everyone
    return (mine,), everyone


@takes_long()
@pytest.mark.mpi(ranks=[3, 4])
@pytest.mark.parametrize("node_size", [1, 2])
@pytest.mark.parametrize("name", ["gather", "scatter", "alltoall", "allgather"])
def test_what_goes_from_rank_to_rank_goes_on_by_itself(name, node_size):
    """Short and long, of one message and of those that wait for their receiver."""
    with pretended_nodes(node_size), Communicator(backend="hierarchical") as comm:
        for count in (3, 1_000, 1 << 18):
            arguments, want = arguments_and_result(comm, name, count)
            getattr(comm, name)(*arguments)  # ranks guess what they were given last by this root
            work = getattr(comm, f"i{name}")(*arguments)
            end = time.monotonic() + 20
            while not comm.backend.native.is_over and time.monotonic() < end:
                pass  # Python computes, and helps no call on this rank or another
            assert comm.backend.native.is_over
            np.testing.assert_array_equal(work.wait(timeout=10.0), want)


@pytest.mark.mpi(ranks=4)
def test_short_allgathers_into_pieces():
    with pretended_nodes(2), Communicator(backend="hierarchical") as comm:
        counts = [3, 0, 1, 500]
        pieces = [np.zeros(n, np.int16) for n in (2, 300, 202)]
        mine = np.full(counts[comm.rank], comm.rank, np.int16)
        for request in comm.backend.allgather_pieces(mine, pieces, counts):
            while not request.Test():
                pass
        np.testing.assert_array_equal(np.concatenate(pieces), np.repeat(np.arange(4), counts))


WITHOUT_THREADS = """
import mpi4py
mpi4py.rc.thread_level = "serialized"
import numpy as np
from mpistrat.collectives import Communicator
with Communicator(backend="hierarchical") as comm:
    assert comm.backend.name == "hierarchical" and not comm.backend.capabilities().asynchronous
    work = comm.iallreduce(np.ones(1 << 18))
    assert not work.done and (work.wait() == comm.size).all()
    print("summed")
"""


@takes_long()
def test_without_threads_in_mpi_calls_go_on_in_waits():
    env = {"PYTHONPATH": PATH, "MPISTRAT_NODE_SIZE": "1"}
    result = run_job(["-c", WITHOUT_THREADS], 2, env=env)
    assert result.returncode == 0, result.output
    assert [rank.stdout for rank in result.ranks] == ["summed\n"] * 2, result.output


OTHER_LIBRARY = """
import sys
import numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.mpi_support import symbols as library
from mpistrat.errors import BackendUnavailableError
if MPI.COMM_WORLD.rank == 1:
    library._FUNCTIONS = ("MPI_Isend", "MPI_Unknown")
with Communicator() as comm:
    assert comm.backend.name == "mpi" and comm.allreduce(1) == comm.size
try:
    Communicator(backend="hierarchical")
except BackendUnavailableError as error:
    assert "rank 1" in str(error) and "MPI_Unknown" in str(error), error
    print("refused")
"""


@takes_long()
def test_a_library_that_cannot_be_called_leaves_all_to_mpi():
    env = {"PYTHONPATH": PATH, "MPISTRAT_NODE_SIZE": "1"}
    result = run_job(["-c", OTHER_LIBRARY], 2, env=env)
    assert [rank.stdout for rank in result.ranks] == ["refused\n"] * 2, result.output
    assert "collectives use MPI alone" in result.ranks[0].stderr, result.output


@pytest.mark.mpi(ranks=4)
def test_auto_takes_it_on_several_nodes_only():
    with pretended_nodes(2), Communicator() as comm:
        assert comm.backend.name == "hierarchical"
    with Communicator() as comm:
        assert comm.backend.name == "shm"
    with Communicator(backend="hierarchical") as comm:
        assert comm.backend.name == "hierarchical"
        assert comm.allreduce(np.ones(5000))[0] == comm.size


def test_nodes_are_in_the_order_of_their_lowest_ranks():
    nodes = Nodes.of(3, [7, 5, 7, 5, 9, 7])
    assert nodes.groups == ((0, 2, 5), (1, 3), (4,))
    assert (nodes.count, nodes.index, nodes.local_rank, nodes.lanes) == (3, 1, 1, 1)
    assert nodes.mates == (1, 3)
    assert nodes.places[5] == (0, 2)


# ------------------------------------------------------------------------------- lost ranks

REDUCE = "comm.allreduce(array, 'max', out=array)"
# mpirun ends all ranks when one is killed, so what it started is only the parent of the rank.
REDUCES = """
import os, time
if os.fork():
    os.wait()
    time.sleep(60)
import numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
comm = Communicator(MPI.COMM_WORLD, "hierarchical")
array, count = np.ones(1 << 20, np.float32), 0
try:
    while True:
        comm.allreduce(array, 'max', out=array)
        count += 1
        if count == 3:
            print("begun", os.getpid(), flush=True)
except Exception as error:
    print(type(error).__name__, getattr(error, "rank", None), error, sep="|", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("victim", "call"),
    [
        (0, "allreduce"),
        pytest.param(3, "iallreduce", marks=takes_long()),
        pytest.param(3, "allreduce", marks=repeats()),
        pytest.param(0, "iallreduce", marks=repeats()),
    ],
)
def test_a_killed_rank_ends_the_calls_of_every_other(victim, call):
    """Its node sees who it was; on another node MPI may see first that a message is lost."""
    env = {"PYTHONPATH": PATH, "MPISTRAT_NODE_SIZE": "2"}
    how = "comm.iallreduce(array, 'max', out=array).wait()" if call == "iallreduce" else REDUCE
    job = RunningJob(["-c", REDUCES.replace(REDUCE, how)], 4, env=env)
    try:
        pids = [int(line.split()[1]) for line in job.wait_for("begun")]
        os.kill(pids[victim], signal.SIGKILL)
        others = [rank for rank in range(4) if rank != victim]
        for line in job.wait_for("Error|", others, 20.0):
            name, lost, message = line.split("|", 2)
            is_of_mpi = "MPI cannot finish" in message or "failed with Exception" in message
            assert lost == str(victim) or is_of_mpi, message
            assert name in ("PeerLostError", "CommunicationError"), message
    finally:
        job.close()


FAILS = """
import numpy as np
from mpistrat.collectives import Communicator
comm = Communicator()
comm.barrier()
if comm.rank == 2:
    raise ValueError("only on one rank")
comm.allreduce(np.ones(1 << 20))
"""


@takes_long()
def test_a_rank_that_fails_alone_is_reported_on_every_other():
    result = run_job(["-c", FAILS], 3, env={"PYTHONPATH": PATH, "MPISTRAT_NODE_SIZE": "2"})
    assert not result.timed_out, result.output
    assert result.returncode != 0
    for rank in (0, 1):
        assert "PeerLostError" in result.ranks[rank].stderr, result.output
        assert "rank 2" in result.ranks[rank].stderr, result.output


@takes_long()
def test_ranks_must_agree_on_pretended_nodes():
    program = (
        "import os, sys; rank = int(os.environ.get('PMI_RANK',"
        " os.environ.get('OMPI_COMM_WORLD_RANK', 0)));"
        "os.environ['MPISTRAT_NODE_SIZE'] = str(rank + 1);"
        "from mpistrat.collectives import Communicator; Communicator()"
    )
    result = run_job(["-c", program], 3, env={"PYTHONPATH": PATH})
    assert not result.timed_out, result.output
    for output in result.ranks:
        assert "MPISTRAT_NODE_SIZE: 1 on ranks [0]" in output.stderr, result.output
