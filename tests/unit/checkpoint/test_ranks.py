"""Ranks that save together: shares, sharded tensors, and errors of one of them."""

import itertools
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat import MirroredStrategy, Variable
from mpistrat.checkpoint.files import data_files, index
from mpistrat.checkpoint.ranks.division import CUT_BYTES, shares
from mpistrat.errors import CheckpointError, CheckpointNotFoundError, MismatchError, UsageError
from mpistrat.testing.threads import run_ranks
from mpistrat.train import Checkpoint, Part

FULL = np.arange(26.0).reshape(13, 2)


# --------------------------------------------------------------------------------------- shares


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 2**18)), max_size=12),
    st.integers(1, 9),
)
def test_every_row_is_written_once(tensors, size):
    sizes = [(rows * row_bytes, rows) for rows, row_bytes in tensors]
    found = shares(sizes, size)
    assert len(found) == size
    for number, (_, rows) in enumerate(sizes):
        cuts = sorted((a, b) for mine in found for i, a, b in mine if i == number)
        assert [a for a, _ in cuts] == [0, *(b for _, b in cuts[:-1])]
        assert cuts[-1][1] == rows
        assert rows == 0 or all(a < b for a, b in cuts)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=30), st.integers(1, 8))
def test_shares_are_about_equal(rows, size):
    row_bytes = 2000
    sizes = [(count * row_bytes, count) for count in rows]
    total = sum(nbytes for nbytes, _ in sizes)
    for mine in shares(sizes, size):
        nbytes = sum((stop - start) * row_bytes for _, start, stop in mine)
        assert nbytes <= total / size + CUT_BYTES + row_bytes


# -------------------------------------------------------------------------------------- sharded


class Sharded:
    """A variable of which each rank holds some rows, and which has a state, too."""

    def __init__(self, strategy, cuts, rank, full=FULL, name=""):
        self.distribute_strategy = strategy
        self.rows = cuts[rank], cuts[rank + 1]
        self.mine = full[slice(*self.rows)].copy()
        self.full, self.name = full, name

    def checkpoint_parts(self):
        def write(value):
            self.mine[...] = value

        part = Part(
            self.name, self.full.shape, self.full.dtype, lambda: self.mine, write, self.rows
        )
        return [part] if self.rows[0] < self.rows[1] else []


def save_sharded(comm, path, cuts):
    with MirroredStrategy(comm=comm) as strategy:
        Checkpoint(e=Sharded(strategy, cuts, comm.rank), n=3).write(path)


def restore_sharded(comm, path, cuts):
    with MirroredStrategy(comm=comm) as strategy:
        sharded = Sharded(strategy, cuts, comm.rank, FULL * 0)
        Checkpoint(e=sharded, n=0).read(path).assert_consumed()
        np.testing.assert_array_equal(sharded.mine, FULL[slice(*sharded.rows)])


CUTS = {1: [0, 13], 2: [0, 5, 13], 3: [0, 6, 6, 13], 4: [0, 1, 2, 12, 13]}


def test_any_number_of_shards_to_any_other(tmp_path):
    for before, after in itertools.product(CUTS, CUTS):
        run_ranks(before, save_sharded, tmp_path / f"{before}", CUTS[before])
        run_ranks(after, restore_sharded, tmp_path / f"{before}", CUTS[after])


def test_a_sharded_variable_loads_as_a_plain_one_and_back(tmp_path):
    run_ranks(3, save_sharded, tmp_path / "one", CUTS[3])
    variable = Variable(FULL * 0)
    checkpoint = Checkpoint(e=variable, n=0)
    checkpoint.read(tmp_path / "one").assert_consumed()
    np.testing.assert_array_equal(variable, FULL)
    checkpoint.write(tmp_path / "plain")
    run_ranks(2, restore_sharded, tmp_path / "plain", CUTS[2])


def test_only_the_wanted_rows_are_read(tmp_path):
    run_ranks(3, save_sharded, tmp_path / "one", CUTS[3])
    files = data_files.DataFiles(tmp_path / "one", index.read(tmp_path / "one"))
    np.testing.assert_array_equal(files.load("e", (7, 9)), FULL[7:9])
    assert len(files._open) == 1


def one_with(comm, path, make):
    with MirroredStrategy(comm=comm) as strategy:
        make(strategy, comm.rank).write(path)


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ([(0, 6), (7, 13)], "follow row 6"),
        ([(0, 6), (5, 13)], "follow row 6"),
        ([(0, 6), (6, 12)], "has 12 rows"),
    ],
)
def test_rows_that_nobody_or_two_hold(tmp_path, cuts, words):
    def make(strategy, rank):
        return Checkpoint(e=Sharded(strategy, dict(enumerate(cuts[rank], rank)), rank))

    def rank(comm):
        with pytest.raises(CheckpointError, match=words):
            one_with(comm, tmp_path / "one", make)

    run_ranks(2, rank)
    assert not list(tmp_path.iterdir())


def test_parts_that_cannot_be():
    for rows in ((-1, 2), (0, 14), (3, 2)):
        with pytest.raises(UsageError, match="expected"):
            Part("w", FULL.shape, FULL.dtype, FULL.copy, print, rows)
    with pytest.raises(UsageError, match="expected"):
        Part("w", (), FULL.dtype, FULL.copy, print, (0, 1))


# --------------------------------------------------------------------------------------- errors


def test_ranks_that_save_different_things(tmp_path):
    ways = [
        lambda strategy, rank: Checkpoint(
            e=Sharded(strategy, CUTS[3], rank), n=[1] * (1 + rank // 2)
        ),
        lambda strategy, rank: Checkpoint(
            e=Sharded(strategy, CUTS[3], rank), v=np.zeros(2 + rank // 2)
        ),
        lambda strategy, rank: Checkpoint(
            e=Sharded(strategy, CUTS[3], rank, np.zeros((13, 2 + rank // 2)))
        ),
    ]
    for make in ways:

        def rank(comm, make=make):
            with pytest.raises(MismatchError, match="rank 2"):
                one_with(comm, tmp_path / "one", make)

        run_ranks(3, rank)
    assert not list(tmp_path.iterdir())


def test_ranks_that_save_to_different_paths(tmp_path):
    def rank(comm):
        with pytest.raises(MismatchError, match="path"):
            save_sharded(comm, tmp_path / str(comm.rank), CUTS[2])

    run_ranks(2, rank)
    assert not list(tmp_path.iterdir())


def test_ranks_that_restore_different_paths(tmp_path):
    save = tmp_path / "one"
    run_ranks(2, save_sharded, save, CUTS[2])
    shutil.copytree(save, tmp_path / "0")

    def rank(comm):
        with MirroredStrategy(comm=comm) as strategy:
            checkpoint = Checkpoint(e=Sharded(strategy, CUTS[2], comm.rank), n=0)
            with pytest.raises(MismatchError, match="from None on rank 1"):
                checkpoint.restore(None if comm.rank else save)
            with pytest.raises(MismatchError, match="on rank 1"):
                checkpoint.restore(tmp_path / "0" if comm.rank else save)
            checkpoint.restore(None)
            with pytest.raises(CheckpointNotFoundError, match="no complete checkpoint"):
                checkpoint.restore(tmp_path / "none")
            checkpoint.restore(save).assert_consumed()

    run_ranks(2, rank)


def test_what_one_rank_cannot_save(tmp_path):
    def rank(comm):
        with MirroredStrategy(comm=comm) as strategy:
            thing = (1, 2) if comm.rank == 1 else [1, 2]
            checkpoint = Checkpoint(e=Sharded(strategy, CUTS[3], comm.rank), thing=thing)
            with pytest.raises(UsageError, match="rank 1: the number 1 is in a tuple"):
                checkpoint.save(tmp_path / "ckpt")
            checkpoint.thing = [1, 2]
            assert checkpoint.save(tmp_path / "ckpt") == f"{tmp_path}/ckpt-1"

    run_ranks(3, rank)


def test_one_rank_that_cannot_write(tmp_path, monkeypatch):
    write = data_files.write

    def failing(path, pieces):
        if "00001-of" in path.name:
            path.write_bytes(b"half")
            raise PermissionError(13, "not yours", str(path))
        return write(path, pieces)

    def rank(comm):
        with MirroredStrategy(comm=comm) as strategy:
            checkpoint = Checkpoint(e=Sharded(strategy, CUTS[4], comm.rank))
            with pytest.raises(CheckpointError, match=r"rank 1: PermissionError.*not yours"):
                checkpoint.save(tmp_path / "ckpt")

    monkeypatch.setattr(data_files, "write", failing)
    run_ranks(4, rank)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("broken", ["cut", "changed", "missing"])
def test_one_file_that_is_corrupt_is_refused_on_all_ranks(tmp_path, broken):
    run_ranks(3, save_sharded, tmp_path / "one", CUTS[3])
    victim = sorted((tmp_path / "one").glob("data*"))[1]
    whole = victim.read_bytes()
    if broken == "missing":
        victim.unlink()
    else:
        victim.write_bytes(whole[:-1] + (b"" if broken == "cut" else bytes([whole[-1] ^ 1])))

    def rank(comm):
        with MirroredStrategy(comm=comm) as strategy:
            sharded = Sharded(strategy, CUTS[2], comm.rank, FULL * 0)
            with pytest.raises(CheckpointError, match=victim.name):
                Checkpoint(e=sharded, n=0).read(tmp_path / "one")
            assert not sharded.mine.any()

    run_ranks(2, rank)


def test_variables_of_two_strategies(tmp_path):
    def rank(comm):
        with MirroredStrategy(comm=comm) as strategy, MirroredStrategy(comm=comm) as other:
            both = [Sharded(one, CUTS[2], comm.rank) for one in (strategy, other)]
            with pytest.raises(UsageError, match="several strategies"):
                Checkpoint(both=both).save(tmp_path / "ckpt")

    run_ranks(2, rank)
