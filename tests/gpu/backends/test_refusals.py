"""Calls with arrays on GPUs that all ranks refuse alike; the communicator stays usable."""

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import communicator_on_gpus
from mpistrat.errors import (
    ArgumentTypeError,
    BackendUnavailableError,
    MismatchError,
    UsageError,
)


def assert_usable(comm, cupy):
    assert (comm.allreduce(cupy.ones(5, np.float32)).get() == comm.size).all()
    assert (comm.allreduce(np.ones(5)) == comm.size).all()


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
@pytest.mark.parametrize("carrier", ["staged", "peer_memory"])
def test_some_ranks_bring_arrays_of_the_host(carrier):
    calls = {
        "allreduce": lambda comm, x: comm.allreduce(x),
        "reduce": lambda comm, x: comm.reduce(x, root=1),
        "allreduce_many": lambda comm, x: comm.allreduce_many([x, x]),
        "bcast": lambda comm, x: comm.bcast(x),
        "allgather": lambda comm, x: comm.allgather(x),
        "alltoall": lambda comm, x: comm.alltoall(x),
        "reduce_scatter": lambda comm, x: comm.reduce_scatter(x),
        "gather": lambda comm, x: comm.gather(x),
    }
    with communicator_on_gpus(carrier) as (comm, cupy):
        for name, call in calls.items():
            for size in (6, 3000):  # the first one would ride with the headers
                mine = np.ones(size) if comm.rank == 1 else cupy.ones(size)
                with pytest.raises(MismatchError, match="memory=GPU") as caught:
                    call(comm, mine)
                assert f"{name}(" in str(caught.value)
            assert_usable(comm, cupy)


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_lists_of_two_places():
    with communicator_on_gpus("staged") as (comm, cupy):
        with pytest.raises(UsageError, match="GPU:0 and the host"):
            comm.allreduce_many([cupy.ones(3), np.ones(3)])
        with pytest.raises(MismatchError):
            comm.allreduce_many([cupy.ones(3)] if comm.rank else [])
        assert_usable(comm, cupy)


class OfOtherLibrary:
    """As a tensor of torch that has gradients, or is on a GPU that CuPy cannot see."""

    def __init__(self, array, device, error=None):
        self.array, self.device, self.error = array, device, error

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()[0], self.device

    def __dlpack__(self, **options):
        if self.error is not None:
            raise self.error
        return self.array.__dlpack__()


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_arrays_that_their_library_cannot_hand_over():
    with communicator_on_gpus("staged") as (comm, cupy):
        mine = cupy.ones(3)
        refused = OfOtherLibrary(mine, 0, BufferError("use tensor.detach()"))
        for value in (refused, OfOtherLibrary(mine, 97)):
            with pytest.raises(ArgumentTypeError, match="a OfOtherLibrary on a GPU cannot be"):
                comm.allreduce(value)
        with pytest.raises((ArgumentTypeError, MismatchError), match=r"use tensor.detach\(\)"):
            comm.allreduce(refused if comm.rank else mine)
        assert_usable(comm, cupy)


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_results_that_are_wanted_elsewhere():
    with communicator_on_gpus("staged") as (comm, cupy):
        there, here = cupy.ones(3), np.ones(3)
        for call in (
            lambda: comm.allreduce(there, out=here),
            lambda: comm.allreduce(here, out=there),
            lambda: comm.bcast(there, out=here),
            lambda: comm.allreduce_many([there, there], out=[there, here]),
        ):
            with pytest.raises(ArgumentTypeError, match="out is a ndarray; expected"):
                call()
        for out in (cupy.ones(4), cupy.ones(3, np.float32)):
            with pytest.raises(UsageError, match="out has shape"):
                comm.allreduce(there, out=out)
        with pytest.raises(UsageError, match="out has several elements in one place"):
            comm.allreduce(there, out=cupy.broadcast_to(cupy.ones(1), (3,)))
        assert_usable(comm, cupy)


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("carrier", ["auto", "peer_memory"])
@pytest.mark.parametrize("status", [0, 906], ids=["", "of another stream that waits for this"])
def test_a_stream_that_is_being_captured(carrier, status):
    with communicator_on_gpus(carrier) as (comm, cupy):

        class Captured(cupy.cuda.Stream):
            def is_capturing(self):
                if status:
                    raise cupy.cuda.runtime.CUDARuntimeError(status)
                return True

        mine = cupy.ones(6)
        assert_usable(comm, cupy)  # short calls take another way from the second on
        calls = (
            comm.allreduce,
            comm.bcast,
            lambda x: comm.iallreduce(x).wait(),
            lambda x: comm.allreduce_many([x]),
        )
        with Captured(non_blocking=True):
            for call in calls:
                with pytest.raises(UsageError, match="before begin_capture"):
                    call(mine)
        assert_usable(comm, cupy)


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_results_that_are_wanted_on_another_gpu():
    needs_gpus(2)
    with communicator_on_gpus("staged") as (comm, cupy):
        with cupy.cuda.Device(1):
            other = cupy.ones(3)
        with pytest.raises(ArgumentTypeError, match="expected an array of CuPy on GPU:0"):
            comm.allreduce(cupy.ones(3), out=other)
        with pytest.raises(UsageError, match="GPU:0 and GPU:1"):
            comm.allreduce_many([cupy.ones(3), other])
        assert_usable(comm, cupy)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=30)
def test_no_such_carrier():
    with (
        communicator_on_gpus("staged") as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        for _ in range(2):
            patch.setenv("MPISTRAT_GPU_CARRIER", "pigeons")
            with pytest.raises(UsageError, match="'pigeons': expected auto, nccl, peer_memory"):
                comm.allreduce(cupy.ones(3))
            patch.setenv("MPISTRAT_GPU_CARRIER", "staged")
            assert_usable(comm, cupy)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=30)
def test_nccl_for_ranks_that_share_a_gpu():
    with (
        communicator_on_gpus("staged") as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        for call in (comm.allreduce, comm.allgather, lambda x: comm.allreduce_many([x])):
            patch.setenv("MPISTRAT_GPU_CARRIER", "nccl")
            with pytest.raises(BackendUnavailableError, match=r"have 1 GPUs, and NCCL needs one"):
                call(cupy.ones(3))
        assert (comm.allreduce(np.ones(3)) == comm.size).all()
        patch.setenv("MPISTRAT_GPU_CARRIER", "staged")
        assert_usable(comm, cupy)
