"""Ranks that are lost or stand still in a call on GPUs, and GPUs that fail.

Real programs under mpirun, looked at from outside: each has to end.
"""

import gc
import logging
import os
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import CARRIERS, carried_by, communicator_on_gpus
from mpistrat.collectives.backends.gpu.memory import slabs
from mpistrat.system import log
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]
PATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
TIMEOUT_S = 4
ENDS_S = 60  # with the start of the programs, on a busy machine

PROGRAM = """
import os, signal, time
if os.fork():  # mpirun ends all ranks when one is killed, so what it started is only the parent
    os.wait()
    time.sleep(1)
    os._exit(0)
import cupy, numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.gpu.short_arrays import allreduce as short_arrays
from mpistrat.collectives.backends.gpu.carriers import nccl, peer_memory, staged
comm = Communicator(MPI.COMM_WORLD)
with cupy.cuda.Device(comm.rank if {is_apart} else 0):
    mine = {make}
    mine.fill(1)
    for _ in range(2):
        assert (comm.allreduce(mine).get() == comm.size).all()
    {call}  # kernels are compiled here, and not within the deadline
    if comm.rank == 1:
        {happens}
    start = time.monotonic()
    try:
        {call}
        print("none", flush=True)
    except Exception as error:
        waited = time.monotonic() - start
        lost = getattr(error, "rank", None)
        print(type(error).__name__, lost, waited, error, sep="|", flush=True)
    try:
        comm.allreduce(mine)
    except Exception as error:
        print(type(error).__name__, error, sep="|", flush=True)
    if comm.rank != 1:
        start = time.monotonic()
        cupy.cuda.Device().synchronize()
        print("idle", time.monotonic() - start, sep="|", flush=True)
        time.sleep(0.3)  # whoever leaves at once may be the first whose end the others see
    [carrier] = comm.gate.device_backend._carriers.values()
    comm.close()
    if isinstance(carrier, peer_memory.PeerMemory) and comm.rank != 1:
        is_closed = not carrier._slabs._opened and not carrier._slabs.pointers
        print("closed", is_closed, sep="|", flush=True)
"""

IN_TRANSFER = """
        def strike(self, *arguments, **options):
            os.kill(os.getpid(), signal.{signal})
            time.sleep(60)
        for one in (staged.Staged, peer_memory.PeerMemory, nccl.Nccl, short_arrays):
            if hasattr(one, "{method}"):
                one.{method} = strike
"""
FAULT = """
        fault = cupy.RawKernel('extern "C" __global__ void fault(int* p) {{ *p = 1; }}', "fault")
        try:
            fault((1,), (1,), (np.uint64(8),))
        except cupy.cuda.driver.CUDADriverError:
            pass  # the kernel has failed before its launch returned
"""


PLAIN = "cupy.ones(3000, np.float32)"
LONG = "cupy.ones(300_000, np.float32)"  # too long to be all-reduced by the host
REGISTERED = 'comm.empty(300_000, np.float32, device=f"GPU:{cupy.cuda.Device().id}")'
FAMILIES = {
    "allreduce": ("allreduce", "comm.allreduce(mine)", LONG),
    "short": ("copy_down", "comm.allreduce(mine)", PLAIN),  # by the host, if no carrier is named
    "registered": ("allreduce", "comm.allreduce(mine, out=mine)", REGISTERED),
    "a list": ("allreduce", "comm.allreduce_many([mine, mine[:7]])", PLAIN),
    "reduce": ("reduce", "comm.reduce(mine, root=0)", PLAIN),
    "reduce_scatter": ("reduce_scatter", "comm.reduce_scatter(mine)", PLAIN),
    "bcast": ("bcast", "comm.bcast(mine, 1)", PLAIN),
    "allgather": ("allgather", "comm.allgather(mine)", PLAIN),
    "gather": ("gather", "comm.gather(mine, 0)", PLAIN),
    "scatter": ("scatter", "comm.scatter(mine if comm.rank == 1 else None, 1)", PLAIN),
    "alltoall": ("alltoall", "comm.alltoall(mine)", PLAIN),
}
"""What is struck of the carriers, or of short_arrays/allreduce.py, the call, and the memory."""


def what_the_ranks_saw(carrier, happens, family="allreduce"):
    """Run the program on three ranks; return what each rank printed, by rank, in parts."""
    is_apart = carrier in ("nccl", "one_shot")
    needs_gpus(3 if is_apart else 1)
    _, call, make = FAMILIES[family]
    program = PROGRAM.format(is_apart=is_apart, happens=happens.strip(), call=call, make=make)
    env = {
        "PYTHONPATH": PATH,
        **carried_by(carrier),
        "MPISTRAT_TIMEOUT": str(TIMEOUT_S),
        "MPISTRAT_GRACE": "1",
    }
    result = run_job(["-c", program], 3, timeout_s=ENDS_S, env=env)
    assert not result.timed_out, result
    told = [
        [line.split("|") for line in one.stdout.splitlines() if "|" in line or line == "none"]
        for one in result.ranks
    ]
    assert told[0], result
    assert told[2], result
    return told


CASES = [
    pytest.param(carrier, name, marks=[] if carrier == "staged" else takes_long())
    for carrier in (*CARRIERS, "one_shot")
    for name in ("SIGKILL", "SIGSTOP", "fault")
]


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
@pytest.mark.parametrize(("carrier", "name"), CASES)
def test_a_rank_is_lost_in_the_middle_of_an_all_reduce(carrier, name):
    """Every other rank gets an error within the deadline, and the job ends."""
    happens = FAULT if name == "fault" else IN_TRANSFER.format(signal=name, method="allreduce")
    ranks = what_the_ranks_saw(carrier, happens)
    for first, after, idle, *closed in (ranks[0], ranks[2]):
        assert closed == ([["closed", "True"]] if carrier == "peer_memory" else [])
        assert idle[0] == "idle"  # no kernel waits any more
        assert float(idle[1]) < 1
        error, lost_rank, waited, message = first
        assert error == ("CommunicationTimeoutError" if name == "SIGSTOP" else "PeerLostError")
        assert lost_rank == "1" or "ranks that did not come: 1" in message, message
        assert float(waited) < (TIMEOUT_S + 4 if name == "SIGSTOP" else TIMEOUT_S)
        assert after[0] == "CommunicationError"
        assert "the communicator is broken" in after[1]
    if name == "fault":
        error, _, _, message = ranks[1][0]
        assert error == "CommunicationError"
        assert "illegal" in message.lower()


IN_FAMILIES = [
    pytest.param(carrier, family, marks=[] if is_short else takes_long())
    for carrier in CARRIERS
    for family in FAMILIES
    for is_short in [(carrier, family) == ("peer_memory", "registered")]
    if family != "allreduce" and (carrier == "staged" or family != "short")
]


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
@pytest.mark.parametrize(("carrier", "family"), IN_FAMILIES)
def test_a_rank_dies_in_the_middle_of_any_operation(carrier, family):
    """Every other rank that waits for it gets an error within the deadline, and all end."""
    happens = IN_TRANSFER.format(signal="SIGKILL", method=FAMILIES[family][0])
    ranks = what_the_ranks_saw(carrier, happens, family)
    for rank in (0, 2):
        first, after, *_ = ranks[rank]
        if rank == 2 and family in ("reduce", "gather") and first == ["none"]:
            continue  # it had only to send, to another one
        error, lost_rank, waited, message = first
        assert error == "PeerLostError", message
        assert lost_rank == "1"
        assert float(waited) < TIMEOUT_S
        assert after[0] == "CommunicationError"


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_forked_child_leaves_the_transfers_of_its_parent_alone(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        for _ in range(2):
            assert (comm.allreduce(cupy.ones(1000, np.float32)).get() == comm.size).all()
            child = os.fork()
            if child == 0:  # the fork has ended its communicator
                os._exit(0 if comm.health.broken else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@takes_long()
@pytest.mark.measures_memory
@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_nothing_is_left_on_the_gpu_when_a_communicator_is_closed(carrier):
    with communicator_on_gpus(carrier) as (outer, cupy):
        free = []
        for _ in range(3):
            with communicator_on_gpus(carrier) as (comm, _):
                there = comm.empty(9 << 20, np.uint8, device=f"GPU:{cupy.cuda.Device().id}")
                comm.allreduce(there, "max", out=there)
                assert (comm.allreduce(cupy.ones(1000)).get() == comm.size).all()
                del there
            gc.collect()
            cupy.get_default_memory_pool().free_all_blocks()
            outer.barrier()
            free.append(cupy.cuda.runtime.memGetInfo()[0])
        assert free[0] == free[1] == free[2]


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
def test_one_rank_has_no_memory_for_its_slab():
    """All ranks fall back alike, and say so once."""
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logger = logging.getLogger("mpistrat")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_once", set())
        for _ in range(2):
            with communicator_on_gpus("auto", 0) as (comm, cupy):
                if comm.rank == 1:
                    patch.setattr(slabs, "_runtime", lambda c=cupy: _NoMemory(c.cuda.runtime))
                logger.addHandler(handler)
                try:
                    for _ in range(2):
                        total = comm.allreduce(cupy.ones(1000, np.float32))
                        assert (total.get() == comm.size).all()
                finally:
                    logger.removeHandler(handler)
        said = [text for text in told if "not by 'peer_memory'" in text]
        assert len(said) == 1, told
        assert "rank 1: no " in said[0]
        assert "bytes of the GPU's memory" in said[0]


class _NoMemory:
    """A GPU's runtime that has no memory to give."""

    def __init__(self, runtime):
        self._runtime = runtime

    def __getattr__(self, name):
        return getattr(self._runtime, name)

    def malloc(self, nbytes):
        raise self._runtime.CUDARuntimeError(2)
