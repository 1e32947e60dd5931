"""Memory that a native call cannot write to, or does not get."""

import pytest

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(100)

READ_ONLY = """
import mmap, tempfile
import numpy as np
from mpistrat.collectives import Communicator

with tempfile.TemporaryFile() as file, Communicator() as comm:
    mine = np.arange(50_000.0) + comm.rank
    file.write(mine.tobytes())
    file.flush()
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)  # to write to it is to crash
    for count in (50, 3000, 50_000):
        array = np.frombuffer(mapped, count=count)
        for root in range(comm.size):
            assert (comm.bcast(array, root) == np.arange(float(count)) + root).all()
        assert comm.allgather(array).sum() == comm.allreduce(array).sum()
        comm.gather(array), comm.reduce(array)
        comm.alltoall(array[: count // comm.size * comm.size]), comm.reduce_scatter(array)
        comm.scatter(array if comm.rank == 0 else None)
"""

LACKING = """
import resource, time
import numpy as np
from mpistrat.collectives import Communicator
from mpistrat.errors import CommunicationError, PeerLostError

comm = Communicator(None, "shm")
array = np.ones(20_000_000)
comm.allreduce(np.ones(3))
start = time.monotonic()
if comm.rank == 1:
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 200_000_000, resource.RLIM_INFINITY))
try:
    comm.allgather(array)
except PeerLostError as error:
    print("lost", error.rank, flush=True)
except CommunicationError as error:
    print("failed", "MemoryError" in str(error), flush=True)
assert time.monotonic() - start < 5
"""


@takes_long()
@pytest.mark.parametrize("ranks_of_a_node", [1, 2, 4])
def test_arrays_that_cannot_be_written_to(ranks_of_a_node):
    env = {"MPISTRAT_NODE_SIZE": str(ranks_of_a_node)}
    run_job(["-c", READ_ONLY], 4, 60, env=env).check()


@takes_long()
def test_a_rank_that_has_no_memory_for_its_result_tells_the_others():
    result = run_job(["-c", LACKING], 2, 60)
    assert not result.timed_out
    assert "lost 1" in result.ranks[0].stdout, result.ranks[0].text
    assert "failed True" in result.ranks[1].stdout, result.ranks[1].text
