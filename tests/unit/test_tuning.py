"""The table of tunings: what is written is found again, and what is wrong is told."""

import json

import pytest

from mpistrat.collectives.shared import tuning
from mpistrat.collectives.shared.tuning import CALLS, HALVES, Tuning

ENTRIES = {"allreduce": Tuning(chunk_bytes=65536, remote_bytes=1 << 22), "bcast": Tuning()}


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "tuning.json"
    monkeypatch.setenv("MPISTRAT_TUNING", str(path))
    return path


def test_entries_are_kept_by_number_of_ranks(file):
    tuning.write(file, 2, ENTRIES)
    tuning.write(file, 8, {"reduce": Tuning(flat_bytes=4096)})
    assert tuning.find(2) == ENTRIES
    assert tuning.find(8) == {"reduce": Tuning(flat_bytes=4096)}
    assert tuning.find(3) == {}


def test_no_table(file):
    assert tuning.find(2) == {}


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
        [],
        7,
    ],
    ids=str,
)
def test_a_wrong_table_is_told_and_not_used(file, entry, caplog):
    file.parent.mkdir()
    file.write_text(json.dumps({tuning.key(2): entry}))
    assert tuning.find(2) == {}
    assert f"{file} is no table of tunings" in caplog.text


def test_text_of_all_entries():
    every = {name + kind: Tuning(7, 6, 5, 4, 3) for name in CALLS for kind in ("", HALVES)}
    assert tuning.from_text(tuning.to_text(every)) == every
