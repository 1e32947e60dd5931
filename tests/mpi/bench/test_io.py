"""The case ``io`` checks restored bits, times saves and restores, and leaves no file behind."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from mpistrat.testing.launcher import RunningJob, run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")

pytestmark = takes_long()

QUICK = ["--bytes", "64KiB", "--rounds", "3", "--seconds", "0.01"]


def arguments(folder: Path, *options: str) -> list[str]:
    return ["-m", "mpistrat.bench", "io", *QUICK, "--folder", str(folder), *options]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_saves_and_restores(ranks: int, tmp_path: Path) -> None:
    folder, file = tmp_path / "shared", tmp_path / "figures.jsonl"
    folder.mkdir()
    result = run_job(arguments(folder, "--json", str(file)), ranks, timeout_s=60).check()
    assert all(not rank.stdout for rank in result.ranks[1:])
    assert f"checkpoint of 64 KiB of variables; ranks: {ranks}" in result.ranks[0].stdout
    assert not list(folder.iterdir())
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["op"], one["kind"]) for one in found] == [
        (op, kind) for op in ("save", "restore") for kind in ("backend", "bound")
    ]
    for one in found:
        assert (one["case"], one["ranks"], one["bytes"]) == ("io", ranks, 1 << 16)
        assert one["correct"] is True
        assert one["GBps"] == pytest.approx(
            one["bytes"] / one["time_us"]["median"] / 1e3, rel=0.01
        )


def test_a_temporary_folder_is_deleted(tmp_path: Path) -> None:
    argv = ["-m", "mpistrat.bench", "io", *QUICK]
    run_job(argv, 2, timeout_s=60, env={"TMPDIR": str(tmp_path)}).check()
    assert not list(tmp_path.glob("mpistrat-io-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    options = ["--rounds", "100000", "--seconds", "1000"]
    job = RunningJob(arguments(tmp_path, *options), 2, None, None, ())
    try:
        end = time.monotonic() + 30
        while not list(tmp_path.glob("*/checkpoint")):
            assert time.monotonic() < end, job.outputs()
            time.sleep(0.01)
        for pid in job.pids().values():  # as a launcher does
            os.kill(pid, number)
        assert job.wait(30)
        assert not list(tmp_path.iterdir()), job.outputs()
    finally:
        job.close()


WRONG = """
import sys
import mpistrat.bench.__main__ as program
from mpistrat.bench.checkpoint_io.saved_variables import SavedVariables

SavedVariables.restore = lambda self, path: None
sys.argv = {argv!r}[1:]
try:
    program.main()
except SystemExit as end:
    print("exit status", end.code)
    raise
"""


def test_nothing_is_timed_if_other_bits_are_restored(tmp_path: Path) -> None:
    folder, file = tmp_path / "shared", tmp_path / "figures.jsonl"
    folder.mkdir()
    program = WRONG.format(argv=arguments(folder, "--json", str(file)))
    result = run_job(["-c", program], 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    assert "checkpoint: what rank 0 restored is not what was saved" in result.ranks[0].stdout
    assert [rank.stdout.splitlines()[-1] for rank in result.ranks] == ["exit status 1"] * 2
    assert not file.exists()
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--folder", "/no/such/folder"], "expected an existing folder to write in"),
        (["--bytes", "900TiB"], "pass fewer --bytes, or start fewer ranks"),
    ],
)
def test_a_bad_option_is_explained_on_every_rank(options: list[str], message: str) -> None:
    result = run_job(["-m", "mpistrat.bench", "io", *options], 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    for rank in result.ranks:
        said = " ".join(rank.stderr.replace("│", " ").split())
        assert message in said
        assert "Traceback" not in said


@pytest.mark.parametrize("size", ["16", "1KiB,2KiB"])
def test_a_bad_size_is_explained(size: str) -> None:
    result = run_job(["-m", "mpistrat.bench", "io", "--bytes", size], 1, timeout_s=60)
    assert result.returncode != 0
    said = " ".join(result.ranks[0].stderr.replace("│", " ").split())
    assert f"--bytes '{size}': expected one size of at least 32 bytes" in said
