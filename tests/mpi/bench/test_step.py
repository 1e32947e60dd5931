"""The case ``step`` checks each side's sums, times them in turn, and writes its figures."""

import json
from pathlib import Path

import pytest

from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import JobResult, run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")

pytestmark = takes_long()

TINY = ["--scale", "0.002", "--compute-ms", "1", "--bucket-bytes", "64KiB"]
QUICK = ["--rounds", "2", "--seconds", "0.05"]
FACTS = {"mpistrat", "git", "python", "numpy", "mpi4py", "mpi", "machine", "cores"}


def arguments(*options: str) -> list[str]:
    return ["-m", "mpistrat.bench", "step", *TINY, *QUICK, *options]


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def measured(file: Path, ranks: int, *options: str) -> tuple[JobResult, list[dict]]:
    result = run_job(arguments("--json", str(file), *options), ranks, timeout_s=60).check()
    assert all(not rank.stdout for rank in result.ranks[1:])
    found = records(file)
    for one in found:
        assert one.keys() >= FACTS
        assert (one["case"], one["ranks"], one["correct"]) == ("step", ranks, True)
        assert one["time_us"]["min_us"] > 0
        assert one["efficiency"] >= 0
    return result, found


def test_a_step_of_resnet50(tmp_path: Path) -> None:
    result, found = measured(tmp_path / "figures.jsonl", 2)
    said = result.ranks[0].stdout
    assert "step of resnet50 at scale 0.002: 161 gradients, 0.06 M float32" in said
    assert "exposed ms" in said
    assert "over mpi4py" in said

    alone, ours, overlapped, theirs, theirs_overlapped = found
    assert [one["overlap"] for one in found] == [False, False, True, False, True]
    assert [one["kind"] for one in found] == ["bound", *["backend"] * 2, *["peer"] * 2]
    assert theirs["side"] == "mpi4py, in sequence"
    assert (alone["efficiency"], alone["exposed_us"]["max_us"], alone["speedup"]) == (1, 0, {})
    for one in found:
        assert (one["model"], one["scale"], one["tensors"]) == ("resnet50", 0.002, 161)
        assert (one["bytes"], one["bucket_bytes"]) == (4 * one["parameters"], 1 << 16)
        assert one["buckets"] > 1
    for one in (ours, overlapped):
        assert one["speedup"].keys() == {"mpi4py"}
    for one in (overlapped, theirs_overlapped):
        assert one["busbw_GBps"] is None


@pytest.mark.parametrize("backend", ["mpi", "auto"])
def test_rows_of_tables_are_gathered(backend: str, tmp_path: Path) -> None:
    options = ["--model", "dlrm", "--backends", backend]
    result, found = measured(tmp_path / "figures.jsonl", 2, *options)
    assert "and rows of 26 tables" in result.ranks[0].stdout
    assert {(one["model"], one["tensors"], one["tables"]) for one in found} == {("dlrm", 16, 26)}
    assert len(found) == 5


def test_without_overlap_and_peer_and_computation(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    options = ["--no-overlap", "--no-mpi4py", "--compute-ms", "0", "--model", "gpt2"]
    _, (_, ours) = measured(file, 3, *options)
    assert ours["overlap"] is False
    assert ours["busbw_GBps"] > 0
    assert ours["speedup"] == {}


@pytest.mark.parametrize("model", ["vgg16", "bert-large", "gpt2-xl"])
def test_the_other_models(model: str, tmp_path: Path) -> None:
    _, found = measured(tmp_path / "figures.jsonl", 2, "--model", model)
    assert {one["model"] for one in found} == {model}


WRONG = """
import sys
import mpistrat.bench.__main__ as program
from mpistrat import Communicator

right = Communicator.iallreduce_many

class Careless:
    def __init__(self, work):
        self.test, self._wait = work.test, work.wait
    def wait(self):
        sums = self._wait()
        sums[-1][...] += 1
        return sums

def careless(self, arrays, **more):
    work = right(self, arrays, **more)
    return Careless(work) if self.rank == 1 else work

Communicator.iallreduce_many = careless
sys.argv = {argv!r}[1:]
try:
    program.main()
except SystemExit as end:
    print("exit status", end.code)
    raise
"""


def test_a_wrong_sum_is_found_before_anything_is_timed(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    argv = arguments("--json", str(file))
    result = run_job(["-c", WRONG.format(argv=argv)], 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    said, backend = result.ranks[0].stdout, "mpi" if why_no_kernels() else "shm"
    for way in ("in sequence", "overlapped"):
        assert f"auto ({backend}), {way}: the gradients of resnet50 are wrong" in said
    assert "mpi4py" not in said
    assert "step ms" not in said
    assert [rank.stdout.splitlines()[-1] for rank in result.ranks] == ["exit status 1"] * 2
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "gpt9"], "expected one of resnet50, vgg16"),
        (["--scale", "2"], "expected a fraction above 0 and at most 1"),
        (["--bucket-bytes", "1KiB,2KiB"], "expected one size above 0"),
        (["--compute-ms", "-1"], "--compute-ms"),
    ],
)
def test_a_bad_option_is_explained(options: list[str], message: str) -> None:
    result = run_job(arguments(*options), 1, timeout_s=60)
    assert result.returncode != 0
    assert message in " ".join(result.ranks[0].stderr.replace("│", " ").split())
