"""The case ``replay`` makes the calls of a recorded program again, on any number of ranks."""

import json
from pathlib import Path

import pytest

from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")

pytestmark = takes_long()

RECORDED = """
import time
import numpy as np
import mpistrat

strategy = mpistrat.MirroredStrategy()
comm = strategy.communicator
ones = np.ones(1000, np.float32)
for _ in range(3):
    time.sleep(0.01)
    comm.allreduce_many([ones, ones[:10]], "mean")
    comm.bcast(ones, root=comm.size - 1)
comm.allgather(ones[:5])
comm.scatter(np.ones(12) if comm.rank == 0 else None)
comm.reduce_scatter(ones[:600])
comm.alltoall(ones[:600])
comm.allgather_object("text")
comm.barrier()
strategy.close()
"""
QUICK = ["--rounds", "3", "--seconds", "0.01"]


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "run.json"
    env = {"MPISTRAT_TIMELINE": str(path)}
    run_job(["-c", RECORDED], 2, timeout_s=60, env=env).check()
    return path


def arguments(timeline: Path, *options: str) -> list[str]:
    return ["-m", "mpistrat.bench", "replay", *QUICK, "--timeline", str(timeline), *options]


def replayed(timeline: Path, file: Path, ranks: int, *options: str) -> list[dict]:
    argv = arguments(timeline, "--json", str(file), *options)
    result = run_job(argv, ranks, timeout_s=60).check()
    assert all(not rank.stdout for rank in result.ranks[1:])
    found = [json.loads(line) for line in file.read_text().splitlines()]
    for one in found:
        assert (one["case"], one["source"], one["ranks"]) == ("replay", "run.json", ranks)
        assert (one["recorded_ranks"], one["correct"], one["rounds"]) == (2, True, 3)
        assert one["recorded_us"] > 0
        assert one["calls"] == sum(op["calls"] for op in one["by_op"].values())
        assert one["bytes"] == sum(op["bytes"] for op in one["by_op"].values())
        assert one["by_op"]["allreduce_many"]["calls"] == 3
        assert one["by_op"]["allreduce_many"]["bytes"] == 3 * 4040
        assert one["by_op"]["bcast"]["bytes"] == 3 * 4000
        assert one["by_op"]["allgather"]["bytes"] == 20
        assert one["by_op"]["scatter"]["bytes"] == 96
    return found


def test_one_rank(timeline: Path, tmp_path: Path) -> None:
    (one,) = replayed(timeline, tmp_path / "figures.jsonl", 1)
    assert one["gaps"] is False


@pytest.mark.parametrize("ranks", [2, 3])
def test_with_the_time_between_calls(ranks: int, timeline: Path, tmp_path: Path) -> None:
    quick, slow = replayed(timeline, tmp_path / "figures.jsonl", ranks, "--gaps")
    assert (quick["gaps"], slow["gaps"]) == (False, True)
    assert slow["gaps_us"] > 20_000
    assert slow["time_us"]["min"] > slow["gaps_us"]
    assert slow["recorded_us"] == pytest.approx(quick["recorded_us"] + slow["gaps_us"])


@pytest.mark.skipif(why_no_kernels() is not None, reason="there are no kernels")
def test_several_backends(timeline: Path, tmp_path: Path) -> None:
    found = replayed(timeline, tmp_path / "figures.jsonl", 2, "--backends", "mpi,auto")
    first, second = (one["backend"] for one in found)
    assert first == "mpi" != second


WRONG = """
import sys
import mpistrat.bench.__main__ as program
from mpistrat import Communicator

right = Communicator.alltoall
Communicator.alltoall = lambda self, *a, **k: right(self, *a, **k) + (self.rank == 1)
sys.argv = {argv!r}[1:]
try:
    program.main()
except SystemExit as end:
    print("exit status", end.code)
    raise
"""


def test_nothing_is_timed_if_an_answer_is_wrong(timeline: Path, tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    program = WRONG.format(argv=arguments(timeline, "--json", str(file)))
    result = run_job(["-c", program], 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    said = result.ranks[0].stdout
    assert "alltoall of 2400 bytes of float32 is wrong on rank 1" in said
    assert "recorded" not in said
    assert [rank.stdout.splitlines()[-1] for rank in result.ranks] == ["exit status 1"] * 2
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{}, 5]", "event 1: 5 is no object"),
        ("no JSON", "is no JSON"),
        (None, "such as run.json or run.json.rank0"),
    ],
)
def test_a_bad_file_is_explained_on_every_rank(
    text: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)
    result = run_job(arguments(path), 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    for rank in result.ranks:
        said = " ".join(rank.stderr.replace("│", " ").split())
        assert message in said
        assert "Traceback" not in said
