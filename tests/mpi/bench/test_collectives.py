"""The case ``collectives`` runs under mpirun: all operations, checked and written down."""

import json
from pathlib import Path

import pytest

from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import run_job

pytest.importorskip("typer")

from mpistrat.bench.harness.expected_results import OPS
from mpistrat.testing.sets import takes_long

FACTS = {"mpistrat", "git", "python", "numpy", "mpi4py", "mpi", "machine", "cores", "host"}


def arguments(file: Path, *more: str) -> list[str]:
    quick = ["--rounds", "3", "--seconds", "0.01", "--json", str(file)]
    return ["-m", "mpistrat.bench", "collectives", *quick, *more]


def auto_backend() -> str:
    """Return what ``auto`` is for the ranks of one machine."""
    return "mpi" if why_no_kernels() else "shm"


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@takes_long()
def test_all_operations_are_right_and_recorded(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    options = ["--ops", ",".join(OPS), "--bytes", "8,1KiB", "--dtypes", "float32,int32"]
    sides = ["--backends", "auto,threads", "--peers", "mpi4py", "--memcpy"]
    result = run_job(arguments(file, *options, *sides), 2, timeout_s=60).check()
    printed = result.ranks[0].stdout
    assert "backend threads: left out, backend 'threads' cannot be used here" in printed
    assert "over mpi4py" in printed
    assert "\x1b" not in printed, "escape codes in what may be a file"
    assert result.ranks[1].text == ""

    found = records(file)
    wanted = [("barrier", "float32", 0)]
    wanted += [
        (op, dtype, nbytes)
        for op in OPS[:-1]
        for dtype in ("float32", "int32")
        for nbytes in (8, 1024)
    ]
    for side, kind in ((f"auto ({auto_backend()})", "backend"), ("mpi4py", "peer")):
        mine = [one for one in found if one["side"] == side]
        assert sorted((one["op"], one["dtype"], one["bytes"]) for one in mine) == sorted(wanted)
        assert {one["kind"] for one in mine} == {kind}
    assert sum(one["side"] == "memcpy" for one in found) == 4
    for one in found:
        assert one.keys() >= FACTS
        assert (one["case"], one["ranks"], one["nodes"], one["correct"]) == (
            "collectives",
            2,
            1,
            True,
        )
        assert one["in_place"] == (one["op"] == "bcast")
        times = list(one["time_us"].values())
        assert times == sorted(times)
        assert times[0] > 0
        assert one["mpi"]


@takes_long()
def test_in_place_on_three_ranks(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    options = ["--ops", "allreduce,reduce,bcast", "--in-place", "--bytes", "100"]
    more = ["--reduction", "max", "--peers", "mpi4py"]
    run_job(arguments(file, *options, *more), 3, timeout_s=60).check()
    found = records(file)
    assert len(found) == 6
    assert all(one["in_place"] and one["correct"] and one["bytes"] == 100 for one in found)


@takes_long()
def test_all_operations_with_and_without_out(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    run_job(arguments(file, "--ops", "all", "--new", "--bytes", "1KiB"), 2, timeout_s=60).check()
    sides = [(one["op"], one["side"].endswith(", new")) for one in records(file)]
    assert len(sides) == len(set(sides)) == 17  # a barrier has no result
    assert all(one["correct"] for one in records(file))


@takes_long()
def test_wrong_answer_is_recorded_and_ends_the_job(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    code = f"""
import sys
import mpistrat.bench.__main__ as program
import mpistrat.bench.harness.sides as sides

right = sides.backend_call

def careless(communicator, problem, *more):
    call = right(communicator, problem, *more)
    return lambda: call() + (communicator.rank == 1)

sides.backend_call = careless
sys.argv = {arguments(file, "--bytes", "8,64")!r}[1:]
program.main()
"""
    result = run_job(["-c", code], 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    assert f"auto ({auto_backend()}) WRONG" in result.ranks[0].stdout
    assert "allreduce of 8 bytes of float32 is wrong" in result.ranks[0].stdout
    (record,) = records(file)
    assert record["correct"] is False


@takes_long()
def test_bad_option_is_explained(tmp_path: Path) -> None:
    result = run_job(arguments(tmp_path / "none", "--bytes", "8K"), 1, timeout_s=60)
    assert result.returncode != 0
    assert "expected a number of bytes" in result.ranks[0].stderr
    assert not (tmp_path / "none").exists()
