"""Result files: what is written is read again, lines of cases too, and bad ones are named."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from mpistrat.bench.results.file import append_point, distinct, read_points
from mpistrat.bench.results.point import Placement, Point, Setup
from mpistrat.errors import UsageError

POINT = Point(
    setup=Setup(case="collectives", options={"ops": "bcast", "new": ""}, ranks=2, nodes=1),
    repeat=1,
    duration_s=1.5,
    records=({"op": "bcast", "bytes": 8},),
    placement=(Placement(rank=0, host="n1", cores=(0, 1)),),
    facts={"date": "2026-11-26"},
    job={"id": "7"},
)


def test_points_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    failed = POINT.model_copy(update={"status": "failed", "message": "no\nkernels"})
    append_point(file, POINT)
    append_point(file, failed)
    assert read_points([file, file]) == [POINT, failed] * 2
    assert POINT.setup.title == "collectives --ops bcast --new, 2 ranks on 1 node"


def test_a_line_that_a_crash_cut_is_left_out_and_ended(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    append_point(file, POINT)
    file.write_text(file.read_text() + file.read_text()[:40])
    append_point(file, POINT)
    assert read_points([file]) == [POINT, POINT]


def test_lines_of_a_case_become_a_point_for_each_run(tmp_path: Path) -> None:
    file = tmp_path / "case.jsonl"
    lines = [
        {"case": "step", "ranks": ranks, "side": side, "date": "2026-11-26", "cores": 2}
        for ranks in (2, 4)
        for side in "ab"
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = read_points([file])
    assert (first.setup.ranks, second.setup.ranks) == (2, 4)
    assert [one["side"] for one in first.records] == ["a", "b"]
    assert first.facts == {"date": "2026-11-26", "cores": 2}
    assert first.setup.nodes == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("notes of mine", "file:2: 'notes of mine' is no result"),
        ("[1]", r"file:2: '\[1\]' is no result"),
        ('{"a": 1}', "file:2: .* is no result"),
        ('{"format": "other"}', "file:2: format: .*mpistrat-results-1"),
        ('{"format": "mpistrat-results-1"}', "file:2: setup: Field required"),
        ('{"case": "step", "ranks": 0}', "file:2: .*greater than or equal to 1"),
        ('{"case": "step", "ranks": 1000000000}', "file:2: .*less than or equal to 100000000"),
        ('{"case": "step", "ranks": 1%s}' % ("0" * 30), "file:2: 1000.* has 31 digits"),
        ('{"case": "step", "bytes": %s}' % ("9" * 5000), "file:2: 9999.* has 5000 digits"),
        ('{"case": "step", "a": %s' % ("[" * 200_000), "file:2: nested more than 20 times"),
        ('{"case": ' + "[" * 30 + "]" * 30 + "}", "file:2: nested more than 20 times"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "file"
    file.write_text(f"\n{line}\n")
    with pytest.raises(UsageError, match=words):
        read_points([file])


def test_a_file_that_is_named_twice_is_one(tmp_path: Path) -> None:
    first, other, link = (tmp_path / name for name in ("first", "other", "link"))
    first.touch()
    other.touch()
    link.symlink_to(first)
    missing = tmp_path / "none"
    assert distinct([first, other, link, first, missing, missing]) == [first, other, missing]


def test_half_of_a_character_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text('{"case": "step", "host": "a\\uD800b", "model": "\\ud83d\\ude00"}\n')
    (found,) = read_points([file])
    assert found.facts == {"host": "a?b"}
    assert found.records[0]["model"] == "\N{GRINNING FACE}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none: cannot be read"):
        read_points([tmp_path / "none"])
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="bytes: cannot be read"):
        read_points([tmp_path / "bytes"])
