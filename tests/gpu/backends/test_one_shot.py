"""Short all-reduces by one kernel, which waits on the GPU for those of the other ranks."""

import contextlib
import logging
import signal
import time

import numpy as np
import pytest

from helpers.gpu.ranks import WaitingKernel, communicator_on_gpus
from mpistrat.collectives import shutdown
from mpistrat.collectives.backends.gpu.carriers import one_shot
from mpistrat.errors import CommunicationError, CommunicationTimeoutError, PeerLostError
from mpistrat.system import log
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.sets import takes_long

MOST_BYTES = 2048
ENDS_S = 2.0  # a kernel that was called off, and what was queued behind it


@contextlib.contextmanager
def launches_counted():
    """Yield a list to which every all-reduce by one kernel adds its number of elements."""
    counts = []
    launch = one_shot.OneShotAllreduce.allreduce

    def counted(self, send, recv, op):
        counts.append(send.size)
        return launch(self, send, recv, op)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_shot.OneShotAllreduce, "allreduce", counted)
        yield counts


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_short_arrays_go_by_one_kernel_and_long_ones_by_nccl():
    with (
        setting("GPU_ONE_SHOT_BYTES_OF_FEW", MOST_BYTES),
        communicator_on_gpus("one_shot") as (comm, cupy),
        launches_counted() as counts,
    ):
        for size in (1, 512, 513, 7, 100_000, 300, 301):
            for op, dtype in (("sum", "float32"), ("prod", "complex64")):
                everyone = [sample(dtype, (size,), rank) for rank in range(comm.size)]
                want = expected_reduction(op, everyone)
                mine = cupy.asarray(everyone[comm.rank])
                found = comm.allreduce(mine, op)
                assert_same(found.get(), want, f"{op} of {size} {dtype}")
        assert counts == [1, 1, 512, 7, 7, 300, 301]  # complex64 has half as many in so many bytes


@takes_long()
@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_rounds_follow_one_another_without_a_wait():
    with communicator_on_gpus("one_shot") as (comm, cupy), launches_counted() as counts:
        total = cupy.full(5000, 1.0, np.float32)
        works = [comm.iallreduce(total, "mean", out=total) for _ in range(50)]
        for work in works:
            work.wait()
        assert (total.get() == 1).all()
        assert len(counts) == 50


@takes_long()
@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_the_gpu_of_a_rank_does_not_come():
    """Its host does: the error says which rank the kernels have waited for, and they end."""
    with communicator_on_gpus("one_shot") as (comm, cupy):
        shutdown.forget(comm)  # it breaks, and the job goes on
        mine = cupy.ones(1000, np.float32)
        comm.allreduce(mine)
        stream = cupy.cuda.Stream(non_blocking=True)
        busy = WaitingKernel(stream) if comm.rank == 1 else None
        with stream, pytest.raises(CommunicationError) as caught:
            comm.allreduce(mine, timeout=1.0)
        start = time.monotonic()
        if busy is None:
            cupy.cuda.Device().synchronize()
            assert time.monotonic() - start < ENDS_S
        else:
            busy.end()
        message = str(caught.value)
        if isinstance(caught.value, CommunicationTimeoutError):
            assert caught.value.missing == (1,)
            assert ("of this rank has" if comm.rank == 1 else "GPU of rank 1;") in message
        else:  # a peer gave up a moment before, and says why
            assert "CommunicationTimeoutError" in message
        with pytest.raises(CommunicationError, match="the communicator is broken"):
            comm.allreduce(mine)


@takes_long()
@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_an_interrupt_while_the_kernel_waits():
    with communicator_on_gpus("one_shot") as (comm, cupy):
        shutdown.forget(comm)  # it breaks, and the job goes on
        mine = cupy.ones(1000, np.float32)
        comm.allreduce(mine)
        stream = cupy.cuda.Stream(non_blocking=True)
        busy = WaitingKernel(stream) if comm.rank == 1 else None
        expected = PeerLostError
        if comm.rank == 0:
            expected = KeyboardInterrupt
            before = signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        with stream, pytest.raises(expected) as caught:
            comm.allreduce(mine)
        if comm.rank == 0:
            signal.signal(signal.SIGALRM, before)
        else:
            assert "rank 0 gave up with KeyboardInterrupt" in str(caught.value)
        start = time.monotonic()
        if busy is None:
            cupy.cuda.Device().synchronize()
            assert time.monotonic() - start < ENDS_S
        else:
            busy.end()


@contextlib.contextmanager
def told():
    """Yield a list to which all messages of the log are added."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("mpistrat")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_once", set())
        logger.addHandler(handler)
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            yield messages
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)


def nothing(self, *arguments):
    """Launch no kernel, for which the others wait."""


def wrong(self, *arguments):
    """Return what the other ranks do not expect, and a place for the sum."""
    import cupy

    return cupy.ones(64, np.int64), cupy.ones(64, np.int64)


@takes_long()
@pytest.mark.mpi(ranks=3, timeout_s=60)
@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        ("_launch", nothing, "has waited for other GPUs for 1 s; rank 1 did not come"),
        ("_numbers", wrong, "does not hold what they have written"),
    ],
)
def test_it_is_not_used_where_its_trial_fails(name, broken, said):
    with (
        setting("GPU_ONE_SHOT_BYTES_OF_FEW", 64 * 8),
        pytest.MonkeyPatch.context() as patch,
        communicator_on_gpus("one_shot") as (comm, cupy),
        told() as messages,
        launches_counted() as counts,
    ):
        patch.setattr(one_shot, "_PROBE_S", 1.0)
        if comm.rank == 1:
            patch.setattr(one_shot.OneShotAllreduce, name, broken)
        for _ in range(2):
            assert (comm.allreduce(cupy.ones(50, np.float32)).get() == comm.size).all()
        assert counts == []
        found = [text for text in messages if "short all-reduces on GPUs go by NCCL" in text]
        assert len(found) == 1, messages
        assert said in found[0]
