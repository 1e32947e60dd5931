"""Files and options that are wrong are named; none overwrites results or ends in a traceback."""

import json
import math
import shutil
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pydantic")

import typer
from typer.testing import CliRunner, Result

from mpistrat.bench.cost_model.command import command
from mpistrat.bench.cost_model.readable_records import readable_points
from mpistrat.bench.results.file import read_points
from mpistrat.testing.sets import takes_long

FILE = Path(__file__).parent / "data" / "four_hosts.jsonl"


def run(*arguments: str | Path) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    called = [str(one) for one in arguments]
    return CliRunner().invoke(app, called, env={"COLUMNS": "300"})


def refused(*arguments: str | Path) -> str:
    """Return the message of a usage error, without its frame."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join((result.output + result.stderr).replace("│", " ").split())


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return Path(shutil.copy(FILE, tmp_path / "in.jsonl"))


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Return a file of the measurements of one node, which are fitted soon."""
    file = tmp_path / "few.jsonl"
    lines = FILE.read_text().splitlines(keepends=True)
    file.write_text("".join(one for one in lines if '"nodes":1' in one))
    return file


def test_results_are_not_overwritten(results: Path, tmp_path: Path) -> None:
    link, before = tmp_path / "link.jsonl", results.read_bytes()
    link.symlink_to(results)
    for output in (results, link):
        assert "is a file of results; give another name" in refused(results, "-o", output)
        said = refused(FILE, "--validate", results, "-o", output)
        assert "is a file of results; give another name" in said
    assert results.read_bytes() == before


@takes_long()
@pytest.mark.parametrize("name", ["missing/model.json", "/dev/full", "/proc/model.json", "."])
def test_a_model_that_cannot_be_written_is_said(few: Path, tmp_path: Path, name: str) -> None:
    assert "cannot be written" in refused(few, "-o", tmp_path / name)


@pytest.mark.parametrize("each", [50_001, 100_000, 10**9])
def test_nodes_have_room_for_half_of_the_projected_ranks(results: Path, each: int) -> None:
    said = refused(results, "--ranks-per-node", str(each))
    assert f"--ranks-per-node {each}: expected 50,000 at most" in said


@takes_long()
def test_the_largest_nodes_are_projected(results: Path) -> None:
    assert run(results, "--ranks-per-node", "50000").exit_code == 0


@pytest.mark.parametrize("option", ["ranks=²", "ranks=٤", "ranks=", "ranks", "", "ranks=-1"])
def test_what_is_held_out_has_to_be_a_number(results: Path, option: str) -> None:
    assert "expected such as ranks=4,nodes=4" in refused(results, "--hold-out", option)


GOOD = {"kind": "backend", "backend": "auto", "op": "bcast", "ranks": 4, "nodes": 2, "bytes": 8}
BAD = [
    GOOD | {"ranks": "x"},
    GOOD | {"ranks": None},
    {key: value for key, value in GOOD.items() if key != "ranks"},
    GOOD | {"ranks": 2, "nodes": 5},
    GOOD | {"nodes": 0},
    GOOD | {"bytes": -8},
    GOOD | {"bytes": "many"},
    GOOD | {"time_us": {"median": "x"}},
    GOOD | {"time_us": {"median": math.inf}},
    GOOD | {"time_us": None},
    GOOD | {"op": "allreduce", "dtype": []},
]


@pytest.mark.parametrize("record", BAD, ids=str)
def test_records_that_cannot_be_read_are_left_out(tmp_path: Path, record: dict) -> None:
    timed = {"time_us": {"median": 5.0}}
    file = tmp_path / "few.jsonl"
    append(file, "collectives", timed | GOOD, timed | record)
    (point,), left = readable_points(read_points([file]))
    assert point.records == (timed | GOOD,)
    assert left == {"collectives": 1}


@takes_long()
def test_records_that_were_left_out_are_counted(few: Path) -> None:
    append(few, "collectives", *BAD)
    append(few, "ps", {"ranks": "x"})
    result = run(few)
    assert result.exit_code == 0, result.output
    said = f"records that cannot be read: {len(BAD)} of collectives, 1 of ps (expected"
    assert said in result.output


def append(file: Path, case: str, *records: dict) -> None:
    point = {
        "format": "mpistrat-results-1",
        "setup": {"case": case, "ranks": 4, "nodes": 2},
        "records": list(records),
    }
    with file.open("a") as open_file:
        open_file.write(json.dumps(point) + "\n")


@pytest.mark.parametrize(
    ("case", "record"),
    [
        ("weak", {"case": "weak", "kind": "backend", "bytes": 8, "ranks": 2, "nodes": 1}),
        ("strong", {"case": "strong", "kind": "backend", "bytes": 8, "ranks": 2, "nodes": 5}),
        ("step", {"case": "step", "kind": "backend", "bytes": 8, "ranks": "x", "nodes": 1}),
        ("ps", {"ranks": "x"}),
        ("io", {"op": "save", "bytes": 8, "time_us": {"median": "x"}}),
        ("startup", {"time_us": {}}),
    ],
)
def test_records_of_other_cases_are_left_out_too(tmp_path: Path, case: str, record: dict) -> None:
    file = tmp_path / "few.jsonl"
    append(file, case, record)
    (point,), left = readable_points(read_points([file]))
    assert point.records == ()
    assert left == {case: 1}


def test_files_of_nothing_else_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    append(file, "collectives", *BAD)
    said = refused(file)
    assert "no time of a collective in these files" in said
    assert f"records that cannot be read: {len(BAD)} of collectives" in said


def test_good_files_leave_nothing_out(results: Path) -> None:
    points = read_points([results])
    assert readable_points(points) == (points, {})
