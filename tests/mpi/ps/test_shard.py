"""Shards that other processes read in place, under load, and when one of them is killed."""

import os
import pickle
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from mpistrat.errors import (
    BackendUnavailableError,
    ContextError,
    PeerLostError,
    TornReadError,
)
from mpistrat.ps.storage.shard import Shard, ShardReader
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.sets import takes_long, with_all

pytestmark = pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))

ROWS, COLUMNS = 400, 96  # 42 rows a block
SECONDS = 1.5
WAIT_S = 20.0


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def until(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def change(shard, random):
    """Add 1 to every number, in one of the ways."""
    value, rows = shard.version + 1, random.permutation(ROWS)
    whole = np.full((ROWS, COLUMNS), value)
    match random.integers(5):
        case 0:
            shard.assign(whole)
        case 1:
            shard.add(np.ones_like(whole))
        case 2:
            shard.assign_rows(rows, whole)
        case 3:
            with shard.rewriting() as array:
                np.add(array, 1, out=array)
        case _:
            shard.add_rows(rows, np.ones_like(whole))


def own(shard, seconds):
    random, end = np.random.default_rng(0), time.monotonic() + seconds
    while time.monotonic() < end:
        change(shard, random)


def is_one_value(array):
    return array.min() == array.max()


class Watcher:
    """Reads in all the ways, and counts what came of it."""

    def __init__(self, reader, seed):
        self.reader, self.random = reader, np.random.default_rng(seed)
        self.counts = {"whole": 0, "rows": 0, "views": 0, "refused": 0}

    def look(self):
        rows = self.random.integers(0, ROWS, 50)
        before = self.reader.version
        each = self.reader.read_rows(rows, whole=False)
        assert (each.min(axis=1) == each.max(axis=1)).all()
        assert each.min() >= before
        self._whole(rows, before)
        with self.reader.view() as view:
            first = int(view[0, 0])
            assert first >= before
            for _ in range(3):
                assert is_one_value(view)
                assert view[-1, -1] == first
                time.sleep(0)
        self.counts["views"] += 1

    def _whole(self, rows, before):
        try:
            for kind, copy in (
                ("rows", self.reader.read_rows(rows)),
                ("whole", self.reader.read()),
            ):
                assert is_one_value(copy)
                assert copy[0, 0] >= before
                self.counts[kind] += 1
        except TornReadError:
            self.counts["refused"] += 1


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3)
def test_nothing_is_ever_torn():
    comm = world()
    shard = Shard(np.zeros((ROWS, COLUMNS), np.int64)) if comm.rank == 0 else None
    handle = comm.bcast(shard and pickle.dumps(shard.handle()))
    if shard is not None:
        own(shard, SECONDS)
        versions = shard.version
        comm.bcast(versions)
        np.testing.assert_array_equal(shard.read(), np.full((ROWS, COLUMNS), versions))
        comm.barrier()
        shard.close()
        return
    watcher = Watcher(Shard.attach(pickle.loads(handle)), comm.rank)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        watcher.look()
    versions = comm.bcast(None)
    assert watcher.counts["views"] > 0
    assert watcher.reader.version == versions
    np.testing.assert_array_equal(watcher.reader.read(), np.full((ROWS, COLUMNS), versions))
    comm.barrier()


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
@pytest.mark.parametrize("shape", [(), (5,), (0, 2), (3, 4)])
def test_another_process_reads_what_is_there(shape, dtype):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    comm = world()
    value = np.ones(shape, dtype)
    shard = Shard(np.zeros(shape, dtype)) if comm.rank == 0 else None
    handle = comm.bcast(shard and shard.handle())
    if shard is not None:
        shard.assign(value)
        comm.barrier()
    else:
        comm.barrier()
        reader = Shard.attach(handle)
        assert isinstance(reader, ShardReader)
        assert (reader.shape, reader.dtype, reader.version) == (shape, dtype, 1)
        np.testing.assert_array_equal(reader.read(), value)
        with reader.view() as view:
            np.testing.assert_array_equal(view, value)
            with pytest.raises(ValueError, match="read-only"):
                view[...] = 0
        if shape:
            np.testing.assert_array_equal(reader.read_rows([]), value[:0])
    comm.barrier()


# ------------------------------------------------------------------ forked processes, one killed


def forked(function):
    """Call a function in a process of its own, which ends with it; return its number."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended(pid):
    """Wait for a process and return its status; kill one that does not end."""
    found = []

    def is_over():
        found[:] = os.waitpid(pid, os.WNOHANG)
        return found[0] != 0

    try:
        until(is_over)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return found[1]


def hold_forever(handle, pipe):
    with Shard.attach(handle).view():
        os.write(pipe, b"x")
        time.sleep(10 * WAIT_S)


@pytest.mark.mpi(ranks=1)
@pytest.mark.parametrize("is_reaped", [True, False], ids=["reaped", "zombie"])
def test_a_reader_that_is_killed_gives_back_what_it_held(is_reaped):
    shard = Shard(np.zeros((ROWS, COLUMNS), np.int64))
    handle, (there, here) = shard.handle(), os.pipe()
    store = shard._store
    pids = []
    for count in range(4):
        pids.append(forked(lambda: hold_forever(handle, here)))
        assert os.read(there, 1) == b"x"
        change(shard, np.random.default_rng(count))
    assert store.native.leased
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        if is_reaped:
            ended(pid)

    def is_free():
        shard.add_rows([0], np.zeros((1, COLUMNS), np.int64))
        return not store.native.leased

    until(is_free)
    assert len(store._allocated) <= 2
    for pid in pids if not is_reaped else []:
        ended(pid)
    os.close(there)
    os.close(here)
    shard.close()


def own_until_killed(pipe):
    shard = Shard(np.zeros((ROWS, COLUMNS), np.int64))
    os.write(pipe, pickle.dumps(shard.handle()))
    own(shard, 10 * WAIT_S)


@pytest.mark.mpi(ranks=1)
def test_an_owner_that_is_killed_is_an_error_and_leaves_nothing():
    names = {path.name for path in Path("/dev/shm").glob("mpistrat*")}
    there, here = os.pipe()
    pid = forked(lambda: own_until_killed(here))
    handle = pickle.loads(os.read(there, 1 << 16))
    reader = Shard.attach(handle)
    until(lambda: reader.version > 3)
    with reader.view() as view:
        os.kill(pid, signal.SIGKILL)
        for call in (reader.read, lambda: reader.read_rows([0]), lambda: reader.version):
            until(lambda call=call: raises_lost(call, pid))
        assert is_one_value(view)  # what is held is there, whoever dies
    with pytest.raises(BackendUnavailableError, match="ask the owner for copies"):
        Shard.attach(handle)
    ended_by = ended(pid)
    assert os.WTERMSIG(ended_by) == signal.SIGKILL
    with pytest.raises(PeerLostError, match=f"process {pid}, the owner of a shard"):
        reader.read()
    os.close(there)
    os.close(here)
    assert {path.name for path in Path("/dev/shm").glob("mpistrat*")} <= names


def raises_lost(call, pid):
    try:
        call()
    except PeerLostError as error:
        return str(pid) in str(error)
    return False


@pytest.mark.mpi(ranks=1)
def test_a_forked_process_uses_no_shard_of_its_parent_but_a_handle():
    shard = Shard(np.ones((ROWS, COLUMNS), np.int64))
    handle = shard.handle()

    def check():
        for call in (shard.read, lambda: shard.add_rows([], np.zeros((0, COLUMNS), np.int64))):
            with pytest.raises(ContextError, match="which was forked from it"):
                call()
        assert Shard.attach(handle).read().all()

    with shard.view() as view:
        assert ended(forked(check)) == 0
        shard.assign(np.zeros((ROWS, COLUMNS), np.int64))
        assert view.all()  # the child's end gave nothing back
    assert not shard.read().any()
    shard.close()


@takes_long()
@pytest.mark.mpi(ranks=1)
def test_a_change_that_does_not_end_is_an_error_of_the_copy():
    shard = Shard(np.ones((ROWS, COLUMNS), np.int64))
    native = shard._store.native
    reader = Shard.attach(shard.handle())
    assert native.begin()
    native.begin_in(native.current)  # as where there is no memory for another buffer
    for call in (reader.read, lambda: reader.read_rows([0], whole=False)):
        with pytest.raises(TornReadError, match="ask its owner"):
            call()
    native.finish_in(native.current)
    assert reader.read().all()
    shard.close()
