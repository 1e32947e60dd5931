"""Ranks that agree on a shared segment before there is a gate, where one comes too late."""

import gc
import time
import weakref

import pytest

from mpistrat.collectives.backends.mpi import MpiBackend
from mpistrat.collectives.backends.shared_memory import bootstrap
from mpistrat.errors import CommunicationTimeoutError


def tables(backend):
    """Watch the memory to which transfers of a backend are to write."""
    seen, allgather = [], backend.allgather

    def watched(send, recv, counts):
        seen.append(weakref.ref(recv))
        return allgather(send, recv, counts)

    backend.allgather = watched
    return seen


@pytest.mark.mpi(ranks=2, timeout_s=20)
def test_memory_of_a_transfer_that_was_given_up_is_kept():
    """MPI still writes to it, once the other rank comes."""
    from mpi4py import MPI

    backend = MpiBackend.open(MPI.COMM_WORLD, 10.0)
    (seen, text) = (tables(backend), f"rank {backend.rank}")
    if backend.rank == 0:
        with pytest.raises(CommunicationTimeoutError, match=r"rank 0/2 waited 0 s for all ranks"):
            bootstrap.run(bootstrap.exchange(backend, text), 0.1, backend)
        gc.collect()
        table = seen[0]()
        MPI.COMM_WORLD.barrier()
        assert table is not None
        end = time.monotonic() + 10
        while b"rank 1" not in table.tobytes() and time.monotonic() < end:
            MPI.COMM_WORLD.Iprobe()  # so that MPI goes on
        assert table.tobytes().replace(b"\0", b"") == b"rank 0rank 1"
    else:
        MPI.COMM_WORLD.barrier()
        found = bootstrap.run(bootstrap.exchange(backend, text), 10.0, backend)
        assert found == ["rank 0", "rank 1"]
    MPI.COMM_WORLD.barrier()
    backend.control.close()
