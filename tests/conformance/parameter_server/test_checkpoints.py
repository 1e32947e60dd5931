"""Checkpoints that the parameter servers write and read themselves."""

import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import Variable
from mpistrat.checkpoint.files import data_files, index
from mpistrat.checkpoint.ranks import kept_by_servers
from mpistrat.errors import CheckpointError, UsageError
from mpistrat.tables.partitioners import FixedShardsPartitioner
from mpistrat.testing.sets import takes_long
from mpistrat.train import Checkpoint, CheckpointManager

TABLE = np.arange(26.0).reshape(13, 2)
VALUES = {
    "table": TABLE,
    "half": np.arange(7).astype(ml_dtypes.bfloat16),
    "flags": np.array([True, False, True]),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.int64(7),
    "row": np.ones((1, 5), np.complex64),
}


def checkpoint(factor=1):
    """Return one of new variables of the current strategy."""
    given = {name: value * value.dtype.type(factor) for name, value in VALUES.items()}
    return Checkpoint(**{name: Variable(value, name=name) for name, value in given.items()})


def check(restored):
    for name, value in VALUES.items():
        np.testing.assert_array_equal(getattr(restored, name).numpy(), value, strict=True)


def files_of(path):
    return {file["name"] for file in index.read(Path(path))["files"]}


def writers(path, tensor):
    """Return whose files a tensor is in: of the chief, or of the ps by their numbers."""
    names = [one["file"] for one in index.read(Path(path))["tensors"][tensor]["pieces"]]
    return {name.split("-kept-")[1].split("-")[0] if "kept" in name else "chief" for name in names}


@takes_long()
@on_jobs
def test_each_ps_writes_what_it_has(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with tempfile.TemporaryDirectory() as folder, strategy.scope():
            saved = checkpoint()
            path = saved.save(f"{folder}/ckpt")
            assert len(writers(path, "table")) == 2
            assert writers(path, "scalar") == writers(path, "save_counter") == {"chief"}
            assert files_of(path) == {p.name for p in Path(path).glob("data-*")}
            other = checkpoint(factor=0)
            other.restore(path).assert_consumed()
            check(other)
            # Workers see it as well, though they have seen another value.
            assert coordinator.schedule(lambda: other.table[12, 1]).fetch() == 25.0


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 1), (3, 5)])
def test_b93_onto_other_numbers_of_servers_and_parts(before, after, servers, tmp_path):
    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(before))
    def _(strategy, coordinator):
        with strategy.scope():
            checkpoint().write(tmp_path / "one")

    @on_chief(Cast(1, 1, servers), FixedShardsPartitioner(after))
    def _(strategy, coordinator):
        with strategy.scope():
            other = checkpoint(factor=0)
            other.read(tmp_path / "one").assert_consumed()
            check(other)


def test_b91_onto_other_strategies_and_back(tmp_path):
    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(3))
    def _(strategy, coordinator):
        with strategy.scope():
            checkpoint().write(tmp_path / "served")

    plain = checkpoint(factor=0)
    plain.read(tmp_path / "served").assert_consumed()
    check(plain)
    with mpistrat.MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        mirrored = checkpoint(factor=0)
        mirrored.read(tmp_path / "served").assert_consumed()
        check(mirrored)
        mirrored.write(tmp_path / "mirrored")

    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(3))
    def _(strategy, coordinator):
        with strategy.scope():
            other = checkpoint(factor=0)
            other.read(tmp_path / "mirrored").assert_consumed()
            check(other)


@pytest.mark.parametrize("file_bytes", [1, 16, 40, 100])
def test_files_have_a_limited_size(file_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_by_servers, "FILE_BYTES", file_bytes)

    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            checkpoint().write(tmp_path / "one")
            sizes = {}
            found = index.read(tmp_path / "one")
            for one in found["tensors"]["table"]["pieces"]:
                sizes[one["file"]] = (one["rows"][1] - one["rows"][0]) * 16
            assert max(sizes.values()) == max(16, file_bytes // 16 * 16)
            other = checkpoint(factor=0)
            other.read(tmp_path / "one").assert_consumed()
            check(other)


def test_a_manager_keeps_the_last_ones(tmp_path):
    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            saved = checkpoint()
            manager = CheckpointManager(saved, tmp_path, max_to_keep=2)
            for _ in range(4):
                saved.table.assign_add(np.ones((13, 2)))
                manager.save()
            assert len(list(tmp_path.glob("ckpt-*"))) == 2
            saved.table.assign(TABLE * 0)
            saved.restore(manager.checkpoints[0]).assert_consumed()
            np.testing.assert_array_equal(saved.table.numpy(), TABLE + 3)


# ------------------------------------------------------------------------------------- failures


@on_jobs
def test_nothing_is_changed_by_a_file_that_was(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with tempfile.TemporaryDirectory() as folder, strategy.scope():
            path = Path(checkpoint().write(f"{folder}/one"))
            spoiled = spoil(path)
            other = checkpoint(factor=0)
            with pytest.raises(CheckpointError, match=spoiled.name):
                other.read(path)
            assert not any(one.numpy().any() for one in (other.table, other.half, other.row))
            # The servers are as they were: they save and restore again.
            again = checkpoint().write(f"{folder}/two")
            other.read(again).assert_consumed()
            check(other)


def test_what_was_read_is_forgotten_if_another_cannot_read(tmp_path):
    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            path = Path(checkpoint().write(tmp_path / "one"))
            spoil(path)
            other = checkpoint(factor=0)
            with pytest.raises(CheckpointError, match="have changed since"):
                other.read(path)
            keepers = {part.kept[0] for part in other.table}
            assert len(keepers) == 2
            assert [keeper.call(staged) for keeper in keepers] == [0, 0]


def spoil(path):
    """Change the last byte of a file that the second ps wrote; return it."""
    file = min(path.glob("*-kept-1-*"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    return file


def staged(context):
    return len(context.staged)


def test_a_server_that_cannot_write_leaves_the_old_one(tmp_path, monkeypatch):
    write = data_files.write

    def full_disk(path, pieces):
        if "-kept-1-" in path.name:
            path.write_bytes(b"begun")
            raise OSError(28, "No space left on device", str(path))
        return write(path, pieces)

    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            saved = checkpoint()
            path = Path(saved.write(tmp_path / "one"))
            before = files_of(path)
            monkeypatch.setattr(data_files, "write", full_disk)
            saved.table.assign(TABLE * 2)
            with pytest.raises(CheckpointError, match="No space left on device"):
                saved.write(path)
            assert files_of(path) == before == {p.name for p in path.glob("data-*")}
            with pytest.raises(CheckpointError, match="No space left on device"):
                saved.write(tmp_path / "new" / "two")
            assert not (tmp_path / "new").exists()
            monkeypatch.setattr(data_files, "write", write)
            saved.read(path).assert_consumed()
            check(saved)


def test_another_shape_is_refused(tmp_path):
    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            path = checkpoint().write(tmp_path / "one")
            other = Checkpoint(table=Variable(TABLE[:12] * 0), half=Variable(VALUES["half"] * 0))
            with pytest.raises(UsageError, match=r"has shape \(12, 2\)"):
                other.read(path)
            assert not other.half.numpy().any()
