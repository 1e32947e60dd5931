"""Results in the formats of other programs."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("typer")

from typer.testing import CliRunner

from helpers.bench.framed_text import unframed
from mpistrat.bench.__main__ import application
from mpistrat.bench.results.file import append_point
from mpistrat.bench.results.point import Point, Setup

TIMES = {"min": 1.0, "median": 2.5, "p99": 3.0, "max": 4.0}
COLLECTIVE = {
    "side": "auto (shm)",
    "backend": "shm",
    "op": "allreduce",
    "dtype": "float32",
    "time_us": TIMES,
    "rounds": 21,
    "algbw_GBps": 1.6,
    "busbw_GBps": 2.4,
    "reduction": "sum",
    "in_place": False,
    "correct": True,
}
STEP = {"model": "gpt2", "side": "auto (shm), overlapped", "backend": "shm", "bytes": 96}
STEP |= {"time_us": {"median_us": 7.0, "min_us": 6.0, "max_us": 9.0}, "correct": True}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "results.jsonl"
    facts = {"date": "2026-11-26", "mpistrat": "1", "mpi": "MPI | 5"}
    for ranks in (4, 2):
        setup = Setup(case="collectives", ranks=ranks, nodes=1)
        rows = tuple({**COLLECTIVE, "bytes": nbytes} for nbytes in (4096, 8))
        append_point(file, Point(setup=setup, records=rows, facts=facts, job={"id": "7"}))
    setup = Setup(case="step", ranks=2, nodes=1)
    append_point(file, Point(setup=setup, records=(STEP,), facts=facts, site="delta"))
    append_point(file, Point(setup=setup, records=(STEP,), status="failed"))
    return file


def exported(file: Path, name: str) -> list[str]:
    done = CliRunner().invoke(application(), ["export", str(file), "--format", name])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_osu(file: Path) -> None:
    lines = exported(file, "osu")
    assert lines[0].startswith("# OSU MPI Allreduce Latency Test")
    assert "4 ranks on 1 node, run 0" in lines[0]
    assert [line.split() for line in lines[2:4]] == [
        ["8", "2.50", "1.00", "4.00", "21"],
        ["4096", "2.50", "1.00", "4.00", "21"],
    ]
    assert len(lines) == 10


def test_sizes_of_pieces_are_counted_as_the_other_programs_do(tmp_path: Path) -> None:
    file = tmp_path / "pieces.jsonl"
    for op in ("allgather", "alltoall", "reduce_scatter", "bcast"):
        row = {**COLLECTIVE, "op": op, "bytes": 4096}
        append_point(
            file, Point(setup=Setup(case="collectives", ranks=4, nodes=1), records=(row,))
        )
    osu = [line.split()[0] for line in exported(file, "osu") if line[:1].isdigit()]
    assert osu == ["1024", "1024", "4096", "4096"]
    nccl = [line.split()[:2] for line in exported(file, "nccl-tests") if line[:1] == " "]
    assert nccl == [["4096", "256"]] * 3 + [["4096", "1024"]]


def test_nccl_tests(file: Path) -> None:
    row = exported(file, "nccl-tests")[4].split()
    out_of_place = ["2.50", "1.60", "2.40", "0"]
    assert row == ["4096", "1024", "float", "sum", "-1", *out_of_place, *["N/A"] * 4]


def test_extra_p(file: Path) -> None:
    lines = [json.loads(line) for line in exported(file, "extra-p")]
    assert {tuple(line["params"]) for line in lines} == {("p",)}
    paths = [f"collectives->allreduce->auto->{size} bytes" for size in (4096, 8)]
    found = sorted((line["callpath"], line["params"]["p"]) for line in lines)
    assert found == sorted((path, ranks) for path in paths for ranks in (2, 4))
    assert {line["value"] for line in lines} == {2.5}


def test_extra_p_needs_the_same_numbers_of_ranks_for_all(file: Path) -> None:
    """Its reader refuses a file in which a call path lacks a coordinate that others have."""
    lines = [json.loads(line) for line in exported(file, "extra-p")]
    by_path: dict[str, set[int]] = {}
    for line in lines:
        by_path.setdefault(line["callpath"], set()).add(line["params"]["p"])
    assert set(map(frozenset, by_path.values())) == {frozenset({2, 4})}
    assert not any("step" in path for path in by_path)  # on 2 ranks alone


def test_records_that_are_not_whole(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    changes = ({"bytes": "x"}, {"dtype": None}, {"dtype": "nope"}, {"algbw_GBps": None}, {"op": 7})
    rows = tuple({**COLLECTIVE, "bytes": 64, **change} for change in changes)
    rows += ({**COLLECTIVE, "bytes": 64, "time_us": {"median": 3.0}},)
    append_point(file, Point(setup=Setup(case="collectives", ranks=2, nodes=1), records=rows))
    for name in ("osu", "nccl-tests", "extra-p", "reframe"):
        assert exported(file, name)
    assert "3.00              3.00              3.00" in "\n".join(exported(file, "osu"))


def test_results_are_not_overwritten(file: Path, tmp_path: Path) -> None:
    before = file.read_text()
    link = tmp_path / "link"
    link.hardlink_to(file)
    for output in (file, link):
        arguments = ["export", str(file), "--format", "osu", "-o", str(output)]
        run = CliRunner().invoke(application(), arguments)
        assert run.exit_code == 2
        assert "is a file of results" in unframed(run.output)
    assert file.read_text() == before


def test_reframe(file: Path) -> None:
    header, *lines = (line.split("|") for line in exported(file, "reframe"))
    assert {len(line) for line in lines} == {len(header)}
    last = dict(zip(header, lines[-1], strict=True))
    assert (last["system"], last["result"], last["time_us_value"]) == ("delta", "pass", "7.0")
    assert last["environ"] == "MPI / 5"


def test_what_a_format_cannot_hold(file: Path, tmp_path: Path) -> None:
    only_step = tmp_path / "step.jsonl"
    only_step.write_text(file.read_text().splitlines()[2] + "\n")
    run = CliRunner().invoke(application(), ["export", str(only_step), "--format", "osu"])
    assert run.exit_code == 2
    assert "no collectives" in unframed(run.output)
    run = CliRunner().invoke(
        application(), ["export", str(file), "--format", "osu", "-o", str(tmp_path / "no" / "f")]
    )
    assert run.exit_code == 2
    assert "No such file" in unframed(run.output)
