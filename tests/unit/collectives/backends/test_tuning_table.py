"""The table of tunings: what is written is found again, and what is wrong is told."""

import json
import re
from pathlib import Path

import pytest

from mpistrat import built_in_sizes
from mpistrat.collectives.backends.shared_memory import tuning, tuning_table
from mpistrat.collectives.backends.shared_memory.tuning import (
    CALLS,
    HALVES,
    WIRE,
    Tuning,
    WireTuning,
    from_entry,
    wire_from_entry,
)
from mpistrat.collectives.backends.shared_memory.tuning_table import node_key, wire_key

ENTRIES = {"allreduce": Tuning(chunk_bytes=65536, remote_bytes=1 << 22), "bcast": Tuning()}
BUILT_IN = WireTuning(
    built_in_sizes.SHORT_BYTES, built_in_sizes.RING_BYTES, built_in_sizes.RING_MOST_BYTES
)


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "tuning.json"
    monkeypatch.setenv("MPISTRAT_TUNING", str(path))
    monkeypatch.delenv("MPISTRAT_NODE_SIZE", raising=False)
    return path


def find(ranks):
    return tuning_table.find(node_key(ranks), from_entry)


def find_wire(ranks, nodes):
    return tuning_table.find(wire_key(ranks, nodes), wire_from_entry)


def test_entries_are_kept_by_number_of_ranks(file):
    tuning_table.write(file, node_key(2), ENTRIES)
    tuning_table.write(file, node_key(8), {"reduce": Tuning(flat_bytes=4096)})
    assert find(2) == ENTRIES
    assert find(8) == {"reduce": Tuning(flat_bytes=4096)}
    assert find(3) == {}


def test_the_wires_are_kept_by_ranks_and_nodes(file, monkeypatch):
    entry = WireTuning(short_bytes=4096, ring_most_bytes=1 << 17)
    tuning_table.write(file, node_key(2), ENTRIES)
    tuning_table.write(file, wire_key(2, 4), {WIRE: entry})
    assert find(2) == ENTRIES
    assert find_wire(2, 4) == entry
    assert find_wire(4, 2) == find_wire(1, 4) == WireTuning()
    monkeypatch.setenv("MPISTRAT_NODE_SIZE", "2")
    assert find_wire(2, 4) == WireTuning()  # there is no wire between nodes that are pretended


def test_no_table(file):
    assert find(2) == {}
    assert find_wire(2, 2) == WireTuning()


def test_what_is_not_said_is_built_in():
    assert WireTuning().filled() == BUILT_IN
    assert WireTuning(7, 8, 9).filled() == WireTuning(7, 8, 9)
    assert wire_from_entry({WIRE: {"short_bytes": 1}}) == WireTuning(short_bytes=1)


@pytest.mark.parametrize(
    "entry",
    [
        {"allreduce": {"chunk_bytes": -1}},
        {"allreduce": {"chunk_bytes": "1"}},
        {"allreduce": {"chunk_bytes": True}},
        {"allreduce": {"chunk_bytes": 10**30}},
        {"allreduce": {"chunks": 1}},
        {"allreduces": {}},
        {"allreduce": 5},
        {"wire": {}},
        [],
        7,
    ],
    ids=str,
)
def test_a_wrong_table_is_told_and_not_used(file, entry, caplog):
    file.parent.mkdir()
    file.write_text(json.dumps({node_key(2): entry}))
    assert find(2) == {}
    assert f"{file} is no table of tunings" in caplog.text


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"wire": {"ring_bytes": -1}}, "ring_bytes is -1; expected a whole number"),
        ({"wire": {"short_bytes": 1.5}}, "short_bytes is 1.5; expected a whole number"),
        ({"wire": {"ring_most_bytes": None}}, "ring_most_bytes is null; expected a whole number"),
        ({"wire": {"ring_bytes": "x" * 99}}, 'is "' + "x" * 39 + "...; expected a whole number"),
        ({"wire": {"ring_bytes": 9, "ring_most_bytes": 8}}, "no less than ring_bytes, which is 9"),
        ({"wire": {"ring_bytes": 1 << 20}}, "no less than ring_bytes, which is 1048576"),
        ({"wire": {"ring_most_bytes": 1}}, "ring_most_bytes=1: expected no less than"),
        ({"wire": {"max_count": 1}}, "got sizes ['max_count']; expected some of ['short_bytes', "),
        ({"wire": {"self": 1}}, "got sizes ['self']; expected some of"),
        ({"wire": []}, "got []; expected an object with sizes: ['short_bytes', 'ring_bytes', "),
        ({"wire": None}, "got null; expected an object"),
        ({"allreduce": {}}, "got kinds of call ['allreduce']; expected some of ['wire']"),
        ([], "got []; expected an object with kinds of call: ['wire']"),
    ],
    ids=str,
)
def test_a_wrong_wire_is_told_and_not_used(file, entry, why, caplog):
    file.parent.mkdir()
    file.write_text(json.dumps({wire_key(1, 2): entry}))
    with pytest.raises(ValueError, match=re.escape(why)):
        tuning_table.entry(file, wire_key(1, 2), wire_from_entry)
    assert find_wire(1, 2) == WireTuning()
    assert f"{file} is no table of tunings" in caplog.text


def test_a_table_that_is_named_and_missing_is_told_once(file, caplog, monkeypatch):
    assert find(2) == find(3) == {}
    assert caplog.text.count(f"MPISTRAT_TUNING='{file}' is not there") == 1
    caplog.clear()
    monkeypatch.delenv("MPISTRAT_TUNING")
    monkeypatch.setenv("MPISTRAT_CACHE", str(file.parent))
    assert find(2) == {}
    assert caplog.text == ""


def test_a_program_that_makes_the_table_is_not_told(file, caplog, monkeypatch):
    monkeypatch.setattr(tuning_table, "_missing", tuning_table._Missing())
    tuning_table.allow_missing()
    assert find(2) == {}
    assert caplog.text == ""


def test_text_of_all_entries():
    every = {name + kind: Tuning(7, 6, 5, 4, 3) for name in CALLS for kind in ("", HALVES)}
    assert tuning.from_text(tuning.to_text(every)) == every


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"[" * 200_000, b"1" * 10_000], ids=len)
def test_what_is_no_json_is_told_and_not_used(file, content, caplog):
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(ValueError, match="it holds no JSON"):
        tuning_table.read(file)
    assert find(2) == {}
    assert f"{file} is no table of tunings" in caplog.text


# ---------------------------------------------------------------------------------- writing


def test_a_table_that_cannot_be_replaced_stays_whole(file, monkeypatch):
    tuning_table.write(file, node_key(2), ENTRIES)

    def replace(new, _target):
        assert from_entry(json.loads(new.read_text())[node_key(3)]) == {}
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="no room"):
        tuning_table.write(file, node_key(3), {})
    assert find(2) == ENTRIES
    assert list(file.parent.iterdir()) == [file]


def test_mode_and_link_of_a_table_stay(file, tmp_path):
    real = tmp_path / "real.json"
    real.write_text("{}")
    real.chmod(0o640)
    file.parent.mkdir()
    file.symlink_to(real)
    tuning_table.write(file, node_key(2), ENTRIES)
    assert find(2) == ENTRIES
    assert file.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640


def test_trying_to_write_changes_nothing(file):
    tuning_table.try_to_write(file)
    assert list(file.parent.iterdir()) == []
    file.write_text("{}")
    before = file.stat()
    tuning_table.try_to_write(file)
    assert (file.read_text(), file.stat()) == ("{}", before)
    with pytest.raises(OSError, match="exist"):
        tuning_table.try_to_write(file / "below a file")
