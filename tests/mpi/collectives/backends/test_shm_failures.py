"""Shared memory when things go wrong: a rank is killed, a rank forks, there is too little of it.

Real programs under mpirun, looked at from outside.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import RunningJob, run_job
from mpistrat.testing.launching import processes
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]
PATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
DETECTION_S = 1.0

NO_MEMFD = """
import os
def no_memfd(*arguments):
    raise OSError(38, "no memfd here")
if {where}:
    os.memfd_create = no_memfd
"""
EVERYWHERE = NO_MEMFD.format(where=True)


def our_names():
    return {path.name for path in Path("/dev/shm").glob("mpistrat*")}


@pytest.fixture
def dev_shm():
    """Check that a test leaves nothing of ours in /dev/shm.

    Jobs of other tests have files there for some milliseconds while their ranks meet.
    """
    before = our_names()
    yield
    end = time.monotonic() + 2.0
    while (left := our_names() - before) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


# ------------------------------------------------------------------------- a rank that is killed


# mpirun ends all ranks when one is killed, so what it started is only the parent of the rank.
REDUCES = """
import os, time
if os.fork():
    os.wait()
    time.sleep(60)
import numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
comm = Communicator(MPI.COMM_WORLD, "shm")
small, large = np.ones(3, np.float32), np.ones(3 << 20, np.float32)
registered = comm.empty(large.size, np.float32)
registered[:] = 1.0
count = 0
try:
    while True:
        for array in SELECTED:
            comm.allreduce(array, "max", out=array)
        count += 1
        if count == 3:
            print("begun", os.getpid(), flush=True)
except Exception as error:
    seen = time.monotonic()
    print(seen, type(error).__name__, getattr(error, "rank", None), error, sep="|", flush=True)
try:
    comm.allreduce(small)
except Exception as error:
    print(type(error).__name__, error, sep="|", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def reducing(ranks, selected, header=""):
    """Run a job that reduces for ever; yield it, and its ranks' processes, once it has begun."""
    program = header + REDUCES.replace("SELECTED", selected)
    job = RunningJob(["-c", program], ranks, env={"PYTHONPATH": PATH})
    try:
        yield job, [int(line.split()[1]) for line in job.wait_for("begun")]
    finally:
        job.close()


@pytest.mark.parametrize(
    ("victim", "selected", "header"),
    [
        (1, "(small,)", ""),
        pytest.param(0, "(large, small)", EVERYWHERE, marks=takes_long()),
        pytest.param(2, "(registered,)", "", marks=takes_long()),
    ],
    ids=["fast calls", "long calls, without memfd", "in registered memory"],
)
@pytest.mark.usefixtures("dev_shm")
def test_a_rank_is_killed_in_the_middle_of_all_reduces(victim, selected, header):
    with reducing(3, selected, header) as (job, pids):
        killed = time.monotonic()  # one clock for all processes
        os.kill(pids[victim], signal.SIGKILL)
        others = [rank for rank in range(3) if rank != victim]
        job.wait_for("is broken", others)
        for rank in others:
            first, after = job.outputs()[rank].stdout.splitlines()[1:]
            seen, name, lost, message = first.split("|")
            assert (name, lost) == ("PeerLostError", str(victim)), first
            assert f"rank {victim}" in message
            assert float(seen) - killed < DETECTION_S
            assert after.startswith("CommunicationError|the communicator is broken on rank")


@takes_long()
@pytest.mark.parametrize("header", ["", EVERYWHERE], ids=["memfd", "dev_shm"])
@pytest.mark.usefixtures("dev_shm")
def test_a_job_that_is_killed_as_a_whole_leaves_nothing(header):
    with reducing(2, "(registered, small)", header) as (job, pids):
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none can tidy up
            for pid in (*job.pids().values(), *pids):
                with contextlib.suppress(ProcessLookupError):  # mpirun may have ended it
                    os.kill(pid, number)
        job.end(grace_s=0.5)
        # The kernel frees their memory after the signal: on a busy machine that takes its time.
        deadline = time.monotonic() + 5
        while alive := [pid for pid in pids if processes.is_alive(pid)]:
            assert time.monotonic() < deadline, alive
            time.sleep(0.01)


# ----------------------------------------------------------------------------------------- forks

FORKS = """
import os
import numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
comm = Communicator(MPI.COMM_WORLD, "shm")
small, large = np.ones(2), np.ones(1 << 17)
registered = comm.empty(large.size, large.dtype)
calls = {
    "fast": lambda: comm.allreduce(small),
    "long": lambda: comm.allreduce(large),
    "registered": lambda: comm.allreduce(registered),
    "other": comm.barrier,
    "empty": lambda: comm.empty(3),
}
comm.allreduce(small)
for name, call in calls.items():
    for ranks in ([0], range(comm.size)):
        child = os.fork() if comm.rank in ranks else None
        if child == 0:
            try:
                call()
            except RuntimeError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        call()
        if child is not None:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code == 0, (name, code)
assert (comm.allreduce(large, out=large) == comm.size).all()
print("well")
"""


@takes_long()
def test_a_forked_child_is_refused_and_its_parent_goes_on():
    job = run_job(["-c", FORKS], 2, 40.0, env={"PYTHONPATH": PATH}).check()
    assert [out.stdout for out in job.ranks] == ["well\n"] * 2


# --------------------------------------------------------------------------- too little memory

# Runs a job in a mount namespace of its own, which ends with it.
OUTER = """
import json, sys
from mpistrat.testing.launcher import run_job
program, = sys.argv[1:]
job = run_job(["-c", program], 2, 40.0)
print(json.dumps([job.returncode, job.timed_out, [[r.stdout, r.stderr] for r in job.ranks]]))
"""
# MPI libraries make files of their own in /dev/shm when they start: so it shrinks after that.
SHRINKS = """
import ctypes
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"size={size}")
    assert done == 0, ctypes.get_errno()
MPI.COMM_WORLD.barrier()
"""
WORKS = """
import numpy as np
from mpistrat.collectives import Communicator
from mpistrat.errors import BackendUnavailableError
world = MPI.COMM_WORLD

def work(comm):
    for count in (1, 1000, 1 << 20):
        total = comm.allreduce(np.full(count, world.rank + 1.0))
        assert (total == 3).all()
    assert comm.allgather_object(world.rank) == [0, 1]
    print(comm.backend.name, flush=True)
"""
AUTO = """
for _ in range(2):
    with Communicator(world) as comm:
        work(comm)
"""
SHM = """
try:
    Communicator(world, "shm")
except BackendUnavailableError as error:
    print(error, flush=True)
with Communicator(world, "mpi") as comm:
    work(comm)
"""
NO_NAMES = """
import os
world.barrier()
print([name for name in os.listdir("/dev/shm") if name.startswith("mpistrat")])
"""


@functools.cache
def has_namespaces():
    try:
        probe = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm"]
        return subprocess.run(probe, capture_output=True, timeout=20, check=False).returncode == 0
    except OSError:
        return False


def run_in_namespace(*parts, size="1m"):
    """Run a job of two ranks with a small /dev/shm; return what each wrote."""
    if not has_namespaces():
        pytest.skip("unshare -m and mount need root: a small /dev/shm cannot be made here")
    program = "".join([parts[0], SHRINKS.format(size=size), *parts[1:]])
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", OUTER, program],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, timed_out, outputs = json.loads(done.stdout)
    assert (status, timed_out) == (0, False), outputs
    return outputs


def about_memory(stderr):
    """Return the lines of our log that say why there is no shared memory."""
    return [line for line in stderr.splitlines() if "memory" in line]


@takes_long()
def test_too_little_memory_falls_back_to_mpi_or_is_an_error_on_every_rank():
    """A communicator that chooses its backend falls back; one that is asked for shm cannot."""
    outputs = run_in_namespace(EVERYWHERE, WORKS, AUTO, SHM, NO_NAMES)
    for out, _ in outputs:
        first, second, reason, *others = out.splitlines()
        assert (first, second) == ("mpi", "mpi")
        assert reason.startswith("the ranks cannot share"), out
        assert reason.endswith("No space left on device"), out
        assert others == ["mpi", "[]"]
    check_one_warning(outputs)


@takes_long()
def test_too_little_memory_of_one_rank_falls_back_to_mpi():
    where = "'0' == os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK'))"
    outputs = run_in_namespace(NO_MEMFD.format(where=where), WORKS, AUTO, NO_NAMES)
    assert [out for out, _ in outputs] == ["mpi\nmpi\n[]\n"] * 2
    check_one_warning(outputs)


def check_one_warning(outputs):
    first, second = (about_memory(err) for _, err in outputs)
    assert len(first) == 1
    assert "WARNING" in first[0]
    assert "No space left on device" in first[0]
    assert not second


REGISTERS = """
with Communicator(world) as comm:
    assert comm.backend.name == "shm"
    try:
        comm.empty(200 << 20, np.uint8)
    except BackendUnavailableError as error:
        print(error, flush=True)
    work(comm)
    with_room = comm.empty(1 << 20, np.uint8)
    with_room[:] = world.rank
    print(comm.allreduce(with_room, "max").max(), flush=True)
"""


@takes_long()
def test_enough_memory_without_memfd_and_too_little_to_register_breaks_nothing():
    """Registering more than there is is an error on every rank."""
    outputs = run_in_namespace(EVERYWHERE, WORKS, AUTO, REGISTERS, NO_NAMES, size="100m")
    for out, err in outputs:
        first, second, reason, *others = out.splitlines()
        assert (first, second) == ("shm", "shm")
        assert "No space left on device" in reason
        assert others == ["shm", "1", "[]"]
        assert not about_memory(err)
