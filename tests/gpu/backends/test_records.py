"""Calls on GPUs in the flight recorder and in the timeline."""

import json
import os
import sys

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import CARRIERS, communicator_on_gpus
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

CALLS = {
    "allreduce": lambda comm, x: comm.allreduce(x),
    "reduce": lambda comm, x: comm.reduce(x),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x),
    "bcast": lambda comm, x: comm.bcast(x),
    "allgather": lambda comm, x: comm.allgather(x),
    "gather": lambda comm, x: comm.gather(x),
    "alltoall": lambda comm, x: comm.alltoall(x),
    "allreduce_many": lambda comm, x: comm.allreduce_many([x[:10], x[10:]]),
}
NBYTES = 4 * 3000


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_records_say_which_gpu_and_what_carried_it(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        device = f"GPU:{cupy.cuda.Device().id}"
        mine = cupy.ones(3000, np.float32)
        for name, call in CALLS.items():
            call(comm, mine)
            last = comm.records()[-1]
            assert (last.op, last.dtype, last.nbytes) == (name, "float32", NBYTES)
            assert (last.memory, last.device, last.carrier) == ("GPU", device, carrier)
            assert last.state == "done"
            assert f"float32, {device} by {carrier}) of 12000 bytes" in str(last)
            works = [comm.iallreduce(mine) for _ in range(2)]
            for work in works:
                work.wait()
            calls = comm.records()[-2:]
            assert [(one.device, one.carrier) for one in calls] == [(device, carrier)] * 2
        comm.scatter(mine if comm.rank == 0 else None)
        last = comm.records()[-1]
        assert (last.op, last.device, last.carrier) == ("scatter", device, carrier)
        comm.empty(3000, np.float32, device=device)
        last = comm.records()[-1]
        assert (last.op, last.device, last.nbytes) == ("empty", device, NBYTES)
        comm.allreduce(np.ones(3000, np.float32))
        last = comm.records()[-1]
        assert (last.memory, last.device, last.carrier) == ("CPU", None, None)


PROGRAM = """
import cupy, numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
with cupy.cuda.Device({device}), Communicator(MPI.COMM_WORLD) as comm:
    comm.allreduce(cupy.ones(3000, np.float32), "max")
    comm.allreduce(np.ones(3000, np.float32))
    comm.iallgather(cupy.ones(comm.rank + 5, np.int8)).wait()
"""


@takes_long()
@pytest.mark.deadline(60)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_timeline_shows_them_beside_those_of_the_host(carrier, tmp_path):
    needs_gpus(2 if carrier == "nccl" else 1)
    path = tmp_path / "run.json"
    env = {
        "MPISTRAT_TIMELINE": str(path),
        "MPISTRAT_GPU_CARRIER": carrier,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    device = "MPI.COMM_WORLD.rank" if carrier == "nccl" else "0"
    run_job(["-c", PROGRAM.format(device=device)], 2, env=env).check()
    events = [one for one in json.loads(path.read_text()) if one["ph"] == "X"]
    for rank in range(2):
        mine = [one for one in events if one["tid"] == rank]
        there = [one for one in mine if "memory" in one["args"]]
        assert [one["name"] for one in there] == ["allreduce", "allgather"]
        for one, nbytes, dtype in zip(there, (NBYTES, rank + 5), ("float32", "int8"), strict=True):
            shown = {name: one["args"][name] for name in ("memory", "device", "carrier")}
            own = rank if carrier == "nccl" else 0
            assert shown == {"memory": "GPU", "device": f"GPU:{own}", "carrier": carrier}
            assert one["args"]["bytes"] == nbytes
            assert one["args"]["dtype"] == dtype
            assert one["dur"] > 0
        here = [one for one in mine if one["name"] == "allreduce" and one not in there]
        assert [one["args"]["bytes"] for one in here] == [NBYTES]
