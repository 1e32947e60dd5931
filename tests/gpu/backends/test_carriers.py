"""All operations on arrays of GPUs, by each carrier, on a job of three ranks and fewer of them."""

import pytest

from helpers.gpu.arrays_on_gpu import OnGpu
from helpers.gpu.devices import device_of_rank, needs_gpus
from helpers.gpu.ranks import carried_by
from mpistrat.testing.backends.arrays import ArrayCases
from mpistrat.testing.backends.asynchronous import AsyncCases
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.conformance import job_communicator, run_body
from mpistrat.testing.backends.movement import MovementCases
from mpistrat.testing.backends.reductions import ReductionCases
from mpistrat.testing.backends.samples import DTYPES, DTYPES_BY_SIZE
from mpistrat.testing.sets import takes_long, with_all

# All sizes and dtypes where the tests repeat others. Calls of one rank carry little,
# and the kernels' own tests have every dtype.
SIZES = (1, 2, 3) if with_all() else (3,)
REDUCED = DTYPES if with_all() else ("int32", "bfloat16")
MOVED = DTYPES_BY_SIZE if with_all() else ("bfloat16",)


class OnGpus:
    """Where the communicators of the cases are, and what carries their arrays."""

    sizes, dtypes, moved_dtypes = SIZES, REDUCED, MOVED
    carrier = "auto"
    is_shared = True  # whether all ranks use one GPU

    def run(self, size, body):
        needs_gpus(1 if self.is_shared else size)
        with job_communicator(size) as comm, pytest.MonkeyPatch.context() as patch:
            if comm is not None:
                for name, value in carried_by(self.carrier).items():
                    patch.setenv(name, value)
                device = 0 if self.is_shared else device_of_rank(comm.rank)
                run_body(comm, "auto", lambda own: body(OnGpu(own, device)))


class CarrierCases(OnGpus, ReductionCases, MovementCases, ArrayCases, AsyncCases):
    """All that a carrier does."""


@takes_long()
@pytest.mark.mpi(ranks=3, timeout_s=60)  # kernels are compiled on their first use
class TestStaged(CarrierCases):
    sizes = SIZES if with_all() else (1, 3)
    carrier = "staged"


@pytest.mark.mpi(ranks=3, timeout_s=60)  # kernels are compiled on their first use
class TestPeerMemory(CarrierCases):
    carrier = "peer_memory"


@pytest.mark.mpi(ranks=3, timeout_s=60)  # kernels are compiled on their first use
class TestNccl(CarrierCases):
    sizes = (2, 3) if with_all() else (3,)
    carrier = "nccl"
    is_shared = False


@takes_long()
@pytest.mark.mpi(ranks=3, timeout_s=60)  # kernels are compiled on their first use
class TestOneShot(OnGpus, ReductionCases, AsyncCases):  # all else is NCCL's
    sizes = (2, 3) if with_all() else (3,)
    carrier = "one_shot"
    is_shared = False

    def run(self, size, body):
        # Longer arrays have more blocks of the same, and each thread is a fiber of the host's.
        with setting("GPU_ONE_SHOT_BYTES_OF_FEW", 16 << 10):
            super().run(size, body)

    if not with_all():  # lists are packed above the carriers; each dtype is a kernel more
        test_allreduce_many = test_allreduce_many_into_arrays = None
