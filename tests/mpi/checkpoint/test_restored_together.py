"""Ranks read each byte once of what all of them restore; an error of one is an error of all."""

import contextlib
import tempfile
import time
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mpistrat import MirroredStrategy, Variable
from mpistrat.checkpoint.files import index
from mpistrat.checkpoint.files.data_files import DataFiles
from mpistrat.checkpoint.ranks import shared_reading
from mpistrat.collectives import shutdown
from mpistrat.errors import CheckpointError, PeerLostError
from mpistrat.testing.sets import takes_long
from mpistrat.train import Checkpoint, Part, latest_checkpoint

ODD = [
    np.arange(7, dtype=np.int8),
    np.array(3.25),
    np.zeros((0, 4), np.float32),
    np.arange(5).astype(ml_dtypes.bfloat16),
    np.arange(6).reshape(2, 3) * (1 + 2j),
    np.array([True, False, True]),
    np.arange(300_000.0).reshape(3000, 100),  # 2.4 MB, cut between rows
    np.zeros((3, 0)),
    np.arange(11, dtype=np.float16),
]


class Slots:
    """An object with a state that it keeps as it is given."""

    def __init__(self, *arrays):
        self.state = {"arrays": list(arrays), "n": 3}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class Fails:
    """A tensor that one rank cannot take."""

    def __init__(self, fails):
        self.fails, self.value = fails, np.zeros(3)

    def checkpoint_parts(self):
        return [Part("", (3,), self.value.dtype, lambda: self.value, self.write, copies=True)]

    def write(self, value):
        if self.fails:
            raise OSError("no room for it")
        self.value = value.copy()


@contextlib.contextmanager
def watched(batch_bytes=shared_reading.BATCH_BYTES):
    """Yield a strategy, a folder, and a list of the pieces that this rank reads."""
    found = []
    plainly = DataFiles.piece

    def piece(files, key, entry):
        found.append((key, tuple(entry["rows"])))
        return plainly(files, key, entry)

    folder = world_folder()
    with MirroredStrategy() as strategy, strategy.scope(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataFiles, "piece", piece)
        patch.setattr(shared_reading, "BATCH_BYTES", batch_bytes)
        patch.setattr(shared_reading, "_CHUNK_BYTES", 100_003)
        yield strategy, folder, found


def world_folder():
    from mpi4py import MPI

    return Path(MPI.COMM_WORLD.bcast(tempfile.mkdtemp()))


def gathered(rows):
    from mpi4py import MPI

    return [one for some in MPI.COMM_WORLD.allgather(rows) for one in some]


def all_pieces(path):
    tensors = index.read(Path(path))["tensors"]
    return sorted(
        (key, tuple(one["rows"])) for key, entry in tensors.items() for one in entry["pieces"]
    )


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize(
    "batch_bytes", [1, 100, 1 << 20, pytest.param(1 << 30, marks=takes_long())]
)
def test_each_piece_is_read_once_and_every_rank_has_all(batch_bytes):
    with watched(batch_bytes) as (_, folder, pieces):
        path = Checkpoint(v=[Variable(one) for one in ODD], s=Slots(*ODD[:6])).save(folder / "c")
        again = Checkpoint(v=[Variable(np.zeros_like(one)) for one in ODD], s=Slots())
        again.restore(path).assert_consumed()
        for variable, want in zip(again.v, ODD, strict=True):
            assert variable.numpy().dtype == want.dtype
            assert (variable.numpy() == want).all()
        for array, want in zip(again.s.state["arrays"], ODD, strict=False):
            assert array.base is None or array.base.nbytes == want.nbytes  # of its own
            assert array.flags.writeable
            assert (array == want).all()
        assert again.s.state["n"] == 3
        assert sorted(gathered(pieces)) == all_pieces(path)


@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_shares_are_about_equal():
    count = 90
    with watched() as (_, folder, pieces):
        path = Checkpoint(v=[Variable(np.full(1000, i)) for i in range(count)]).save(folder / "c")
        again = Checkpoint(v=[Variable(np.zeros(1000, int)) for i in range(count)])
        again.restore(path).assert_consumed()
        assert [int(one[0]) for one in again.v] == list(range(count))
        assert abs(len(pieces) - count / 3) <= 2


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_ranks_that_restore_different_things_read_their_own():
    with watched() as (strategy, folder, pieces):
        path = Checkpoint(a=Variable(np.arange(5)), b=Variable(np.arange(7))).save(folder / "c")
        rank = strategy.extended.communicator.rank
        b = Variable(np.zeros(7, int))
        more = {"b": b} if rank else {}
        again = Checkpoint(a=Variable(np.zeros(5, int)), **more)
        again.restore(path)
        assert again.a.numpy().tolist() == list(range(5))
        assert b.numpy().tolist() == (list(range(7)) if rank else [0] * 7)
        assert len(pieces) == 2 + rank  # with the counter


@pytest.mark.mpi(ranks=3, timeout_s=60)
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_bytes_that_changed_in_the_share_of_one_rank(broken):
    """All ranks refuse it, before anything is changed, and can restore another one."""
    from mpi4py import MPI

    with watched() as (_, folder, _):
        values = [Variable(np.full(1000, i, np.float32)) for i in range(9)]
        first, path = (Checkpoint(v=values).write(folder / name) for name in "ab")
        if MPI.COMM_WORLD.rank == 0:
            data = sorted(Path(path).glob("data-*.safetensors"))[broken]
            whole = bytearray(data.read_bytes())
            whole[-1] ^= 1
            data.write_bytes(whole)
        MPI.COMM_WORLD.Barrier()
        for one in values:
            one.assign(np.full(1000, 7, np.float32))
        with pytest.raises(CheckpointError, match="is not what was saved"):
            Checkpoint(v=values).read(path)
        assert all((one.numpy() == 7).all() for one in values)
        Checkpoint(v=values).read(first).assert_consumed()
        assert [float(one[0]) for one in values] == list(range(9))


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_rank_that_cannot_take_a_value():
    """The others take theirs, and hear of it; the communicator stays usable."""
    with watched() as (strategy, folder, _):
        rank = strategy.extended.communicator.rank
        path = Checkpoint(a=Fails(False), b=Variable(5.0)).save(folder / "c")
        again = Checkpoint(a=Fails(rank == 1), b=Variable(0.0))
        with pytest.raises(CheckpointError, match=r"rank 1: .*no room for it"):
            again.restore(path)
        assert float(again.b) == 5.0
        again.a.fails = False
        again.restore(latest_checkpoint(folder)).assert_consumed()


@pytest.mark.measures_memory
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_memory_is_not_needed_twice():
    count = 32
    with watched(1 << 20) as (_, folder, _):
        values = [Variable(np.full(1 << 17, i, np.float64)) for i in range(count)]  # 1 MiB each
        checkpoint = Checkpoint(v=values)
        path = checkpoint.save(folder / "c")
        checkpoint.restore(path)
        tracemalloc.start()
        checkpoint.restore(path).assert_consumed()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < (count / 2 + 6) * (1 << 20)


class Interrupted(Fails):
    """A tensor during whose write one rank is interrupted."""

    def write(self, value):
        if self.fails:
            raise KeyboardInterrupt


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_an_interrupt_while_ranks_gather_is_told_to_the_others():
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank

    def restore_interrupted():
        with watched(1) as (strategy, folder, _):
            shutdown.forget(strategy.extended.communicator)
            path = Checkpoint(a=Interrupted(False), b=Variable(5.0)).save(folder / "c")
            Checkpoint(a=Interrupted(rank == 1), b=Variable(0.0)).restore(path)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt if rank else PeerLostError):
        restore_interrupted()
    assert time.monotonic() - start < 5


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_long_share_may_take_longer_than_the_deadline():
    """One process has saved a tensor, so one rank reads all of it."""
    from mpi4py import MPI

    path, value = world_folder() / "c", np.arange(100_000.0)
    if MPI.COMM_WORLD.rank == 0:
        Checkpoint(a=Variable(value)).write(path)  # in no strategy's scope: of this process alone
    MPI.COMM_WORLD.Barrier()
    with watched(), pytest.MonkeyPatch.context() as patch:
        again = Checkpoint(a=Variable(np.zeros(100_000)))
        patch.setattr(shared_reading, "_SLOW_BYTES_PER_S", value.nbytes / 20)
        patch.setenv("MPISTRAT_TIMEOUT", "1")
        plainly = DataFiles.piece

        def piece(files, key, entry):
            time.sleep(2.5)
            return plainly(files, key, entry)

        patch.setattr(DataFiles, "piece", piece)
        again.read(path).assert_consumed()
        assert (again.a.numpy() == value).all()


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_one_tensor_for_two_owners_is_two_arrays(batch_bytes):
    with watched(batch_bytes) as (_, folder, _):
        one = Slots(np.arange(5.0))
        path = Checkpoint(a=one, b=one).save(folder / "c")  # saved once, under two names
        again = Checkpoint(a=Slots(), b=Slots())
        again.restore(path).assert_consumed()
        [a], [b] = again.a.state["arrays"], again.b.state["arrays"]
        a[:] = 0
        assert b.tolist() == list(range(5))
