"""Checkpoints of real ranks: saved on some, restored on others; kills, and errors of one rank."""

import itertools
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from mpistrat import (
    CentralStorageStrategy,
    MirroredStrategy,
    Variable,
    VariableAggregation,
    VariableSynchronization,
)
from mpistrat.checkpoint.files import index
from mpistrat.errors import CheckpointError, MismatchError
from mpistrat.testing.launcher import RunningJob, run_job
from mpistrat.testing.sets import takes_long, with_all
from mpistrat.train import Checkpoint, CheckpointManager, Part, latest_checkpoint

ROOT = Path(mpistrat.__file__).parents[1]
ENV = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
KINDS = [MirroredStrategy, CentralStorageStrategy]
BIG = np.random.default_rng(0).normal(size=(901, 170))  # 1 MB, cut between rows
TABLE = np.arange(70.0).reshape(35, 2)


class Table:
    """A tensor of which each rank holds its share of the rows."""

    def __init__(self, strategy, full):
        communicator = strategy.extended.communicator
        self.distribute_strategy = strategy
        cuts = [len(full) * i // communicator.size for i in range(communicator.size + 1)]
        self.rows = cuts[communicator.rank], cuts[communicator.rank + 1]
        self.shape, self.mine = full.shape, full[slice(*self.rows)].copy()

    def checkpoint_parts(self):
        def write(rows):
            self.mine[...] = rows

        return [Part("", self.shape, self.mine.dtype, lambda: self.mine, write, self.rows)]


def made(strategy, factor):
    """Return a checkpoint whose values are some others times `factor`."""
    on_read = VariableSynchronization.ON_READ
    total = Variable(0.0, synchronization=on_read, aggregation=VariableAggregation.SUM)
    total.assign(12.0 * factor)
    return Checkpoint(
        big=Variable(BIG * factor),
        small=[Variable(np.float16(factor)), {"n": 3 * factor}],
        total=total,
        table=Table(strategy, TABLE * factor),
    )


def check(checkpoint, factor):
    assert (checkpoint.big.numpy() == BIG * factor).all()
    assert checkpoint.small[0] == factor
    assert checkpoint.small[1] == {"n": 3 * factor}
    assert float(checkpoint.total) == 12.0 * factor
    start, stop = checkpoint.table.rows
    assert (checkpoint.table.mine == TABLE[start:stop] * factor).all()


def first_ranks(number, kind=MirroredStrategy):
    """Return a strategy of the first ranks, and whether this is one of them."""
    from mpi4py import MPI

    is_in = number > MPI.COMM_WORLD.rank
    return kind(comm=MPI.COMM_WORLD.Split(0 if is_in else 1)), is_in


def world_folder():
    from mpi4py import MPI

    return Path(MPI.COMM_WORLD.bcast(tempfile.mkdtemp()))


@pytest.mark.mpi(ranks=3, timeout_s=60)
@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=takes_long())])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_any_number_of_ranks_to_any_other(before, kind):
    from mpi4py import MPI

    folder = world_folder()
    strategy, is_in = first_ranks(before, kind)
    with strategy, strategy.scope():
        if is_in:
            path = made(strategy, 1).save(folder / "ckpt")
            assert path == f"{folder}/ckpt-1"
            assert latest_checkpoint(folder) == path
            sizes = [file["nbytes"] for file in index.read(Path(path))["files"]]
            assert len(sizes) == before
            assert max(sizes) - min(sizes) < 10_000  # each writes about the same
    MPI.COMM_WORLD.Barrier()
    for after, kind_after in itertools.product((1, 2, 3), KINDS):
        strategy, is_in = first_ranks(after, kind_after)
        with strategy, strategy.scope():
            if is_in:
                checkpoint = made(strategy, 0)
                checkpoint.restore(latest_checkpoint(folder)).assert_consumed()
                check(checkpoint, 1)
                assert int(checkpoint.save_counter) == 1


@pytest.mark.mpi(ranks=[1, 3], timeout_s=30)
def test_a_manager():
    folder = world_folder()
    with MirroredStrategy() as strategy, strategy.scope():
        checkpoint = made(strategy, 0)
        manager = CheckpointManager(checkpoint, folder, max_to_keep=2)
        assert manager.restore_or_initialize() is None
        for factor in (1, 2, 3):
            checkpoint.big.assign(BIG * factor)
            manager.save()
        strategy.extended.communicator.barrier()
        assert sorted(os.listdir(folder)) == ["checkpoint", "ckpt-2", "ckpt-3"]
        again = made(strategy, 0)
        manager = CheckpointManager(again, folder, max_to_keep=2)
        assert manager.restore_or_initialize() == f"{folder}/ckpt-3"
        assert (again.big.numpy() == BIG * 3).all()
        strategy.extended.communicator.barrier()


@pytest.mark.mpi(ranks=[2, 3], timeout_s=30)
def test_a_disk_error_on_one_rank():
    """The last rank's disk is full: all say so, nothing is left, and the next save is well."""
    import resource

    folder = world_folder()
    with MirroredStrategy() as strategy, strategy.scope():
        communicator = strategy.extended.communicator
        last = communicator.size - 1
        checkpoint = made(strategy, 1)
        good = checkpoint.save(folder / "ckpt")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if communicator.rank == last:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            with pytest.raises(CheckpointError, match=rf"rank {last}: .*File too large"):
                checkpoint.save(folder / "ckpt")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        communicator.barrier()
        assert sorted(os.listdir(folder)) == ["checkpoint", "ckpt-1"]
        assert latest_checkpoint(folder) == good
        communicator.barrier()
        assert checkpoint.save(folder / "ckpt") == f"{folder}/ckpt-2"


@pytest.mark.mpi(ranks=[2, 3], timeout_s=30)
def test_a_corrupt_file_is_refused_on_every_rank():
    folder = world_folder()
    with MirroredStrategy() as strategy, strategy.scope():
        communicator = strategy.extended.communicator
        made(strategy, 1).write(folder / "one")
        victim = max((folder / "one").glob("data*"))
        if communicator.rank == 0:
            data = bytearray(victim.read_bytes())
            data[-1] ^= 1
            victim.write_bytes(data)
        communicator.barrier()
        checkpoint = made(strategy, 0)
        with pytest.raises(CheckpointError, match=victim.name):
            checkpoint.read(folder / "one")
        check(checkpoint, 0)


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_a_program_without_a_strategy_saves_on_each_rank_by_itself():
    from mpi4py import MPI

    folder = world_folder()
    checkpoint = Checkpoint(v=Variable(np.full(5, 2.0)), n=MPI.COMM_WORLD.rank)
    for _ in range(5):
        checkpoint.write(folder / "one")
    MPI.COMM_WORLD.Barrier()
    v = Variable(np.zeros(5))
    Checkpoint(v=v, n=0).read(folder / "one").assert_consumed()
    assert (v.numpy() == 2.0).all()
    assert len(os.listdir(folder / "one")) == 2
    MPI.COMM_WORLD.Barrier()


# ------------------------------------------------------------------------------------------ kill

SAVES = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from test_checkpoint import *

folder, victim, step = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
strategy = MirroredStrategy()
rank = strategy.extended.communicator.rank
with strategy.scope():
    checkpoint = made(strategy, 1)
    manager = CheckpointManager(checkpoint, folder, max_to_keep=1)
    manager.save()
    if rank == victim:
        from mpistrat.system.files import atomic_files
        from mpistrat.checkpoint.files import data_files

        def killed(original):
            def call(*args):
                if step == "after":
                    original(*args)
                if step == "half":
                    original(*args)
                    os.truncate(args[0], args[0].stat().st_size // 2)
                print("killed", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            return call

        if step == "commit":
            atomic_files.replace_whole = killed(atomic_files.replace_whole)
        else:
            data_files.write = killed(data_files.write)
    checkpoint.big.assign(BIG * 2)
    manager.save()
"""

RESTORES = """
import sys
sys.path.insert(0, sys.argv[1])
from test_checkpoint import *

for folder in map(Path, sys.argv[2:]):
    with MirroredStrategy() as strategy, strategy.scope():
        checkpoint = made(strategy, 0)
        manager = CheckpointManager(checkpoint, folder, max_to_keep=1)
        assert manager.restore_or_initialize() == f"{folder}/ckpt-1", folder
        check(checkpoint, 1)
        assert manager.save() == f"{folder}/ckpt-2"
        strategy.extended.communicator.barrier()
        assert sorted(os.listdir(folder)) == ["checkpoint", "ckpt-2"], os.listdir(folder)
        print("went on")
"""
KILLS = [(1, "half"), (0, "commit")]
MORE_KILLS = [(1, "before"), (2, "after"), (0, "half")]


@takes_long()
@pytest.mark.deadline(120)
def test_a_kill_in_the_midst_of_saving_leaves_the_last_good_one(tmp_path):
    here, folders = str(Path(__file__).parent), []
    for victim, step in [*KILLS, *MORE_KILLS] if with_all() else KILLS:
        folders.append(str(tmp_path / f"{victim}-{step}"))
        killed = run_job(["-c", SAVES, here, folders[-1], str(victim), step], 3, 40, ENV)
        assert killed.returncode != 0, killed.output
        assert not killed.timed_out, killed.output
        assert killed.ranks[victim].stdout == "killed\n", killed.output
    result = run_job(["-c", RESTORES, here, *folders], 2, 40, ENV).check()
    assert [rank.stdout for rank in result.ranks] == ["went on\n" * len(folders)] * 2


SAVES_ON = """
import sys
sys.path.insert(0, sys.argv[1])
from test_checkpoint import *

strategy = MirroredStrategy()
with strategy.scope():
    checkpoint = made(strategy, 0)
    manager = CheckpointManager(checkpoint, sys.argv[2], max_to_keep=2)
    manager.restore_or_initialize()
    check(checkpoint, checkpoint.small[1]["n"] // 3)
    while True:
        factor = int(checkpoint.save_counter) + 1
        checkpoint.big.assign(BIG * factor)
        checkpoint.small[0].assign(np.float16(factor))
        checkpoint.small[1]["n"] = 3 * factor
        checkpoint.total.assign(12.0 * factor)
        checkpoint.table = Table(strategy, TABLE * factor)
        print("saved", manager.save(), flush=True)
"""


@takes_long()
@pytest.mark.deadline(120)
def test_kills_at_any_time(tmp_path):
    """The program is killed as it saves, over and over, and restores a whole one each time."""
    numbers = []
    for turn in range(4 if with_all() else 3):
        job = RunningJob(["-c", SAVES_ON, str(Path(__file__).parent), str(tmp_path)], 2, ENV)
        try:
            end = time.monotonic() + 40
            while job.outputs()[0].stdout.count("saved") < 2 + turn:
                if time.monotonic() > end or job.poll() is not None:
                    pytest.fail(f"{job.launcher_output()}\n{[one.text for one in job.outputs()]}")
                time.sleep(0.003 + 0.0011 * turn)
        finally:
            job.close()
        numbers.append(int(latest_checkpoint(tmp_path).rpartition("-")[2]))
    assert numbers == sorted(set(numbers))
    assert numbers[-1] >= sum(2 + turn for turn in range(len(numbers)))


@pytest.mark.mpi(ranks=2, timeout_s=30)
@pytest.mark.parametrize("others", ["a gathering", "restore"])
def test_one_rank_saves_alone(others):
    """Its gatherings are none of those that other ranks make."""
    with MirroredStrategy(["CPU:0"]) as strategy, tempfile.TemporaryDirectory() as folder:
        with strategy.scope():
            checkpoint = Checkpoint(v=Variable(1.0))
        communicator = strategy.communicator
        common = communicator.bcast_object(folder)
        path = checkpoint.save(f"{common}/of all")
        told = r"rank 0: .*\(saving a checkpoint.*\n *rank 1: allgather_object\(\)"
        calls = {
            "a gathering": lambda: communicator.allgather_object("mine"),
            "restore": lambda: checkpoint.restore(path),
            "save": lambda: checkpoint.save(f"{common}/alone"),
        }
        with pytest.raises(MismatchError, match=told):
            calls["save" if communicator.rank == 0 else others]()
        communicator.barrier()
