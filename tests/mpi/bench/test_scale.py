"""``mpistrat bench scale`` on real ranks: what it records of runs that end well, or do not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("typer")

from helpers.framed_text import unframed
from mpistrat.bench.results.file import read_points
from mpistrat.bench.results.point import Point
from mpistrat.system.waiting import wait_until
from mpistrat.testing.launching.processes import TOKEN_VARIABLE

pytestmark = pytest.mark.deadline(150)

BARRIER = """
title = "a barrier"
repeats = 1
ranks = [1, 2]
timeout_s = 60
[[run]]
case = "collectives"
options = { ops = "barrier", rounds = 5, seconds = 0.02 }
"""
WRONG = """
[[run]]
case = "collectives"
options = { ops = "none" }
ranks = [2]
"""
ENDLESS = """
[[run]]
case = "collectives"
options = { ops = "barrier", rounds = 1_000_000, seconds = 3000 }
ranks = [2]
"""


def command(folder: Path, suite: str, *options: str) -> list[str]:
    (folder / "suite.toml").write_text(suite)
    return [sys.executable, "-m", "mpistrat", "bench", "scale", "suite.toml", *options]


def scale(
    folder: Path, suite: str, *options: str
) -> tuple[subprocess.CompletedProcess, list[Point]]:
    done = subprocess.run(
        command(folder, suite, *options),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    file = folder / "results.jsonl"
    return done, read_points([file]) if file.exists() else []


def test_runs_are_recorded_with_where_they_were(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "a barrier: 2 runs" in done.stdout
    assert "2 runs are in results.jsonl" in done.stdout
    for point in points:
        assert (point.status, point.message) == ("ok", "")
        assert [one.rank for one in point.placement] == list(range(point.setup.ranks))
        assert set(point.placement[0].cores) <= os.sched_getaffinity(0)
        assert point.facts["mpi"]
        assert [one["op"] for one in point.records] == ["barrier"]
        assert "date" not in point.records[0]  # the point has it
    assert sorted(point.setup.ranks for point in points) == [1, 2]
    assert not list(tmp_path.glob(".mpistrat-scale-*"))


def test_a_run_that_fails_is_recorded_and_the_suite_goes_on(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER + WRONG)
    assert done.returncode == 1
    assert "1 of 3 runs failed" in done.stdout
    (failed,) = (point for point in points if point.status == "failed")
    assert "op 'none' is not known" in unframed(failed.message)
    assert len(points) == 3
    again, points = scale(tmp_path, BARRIER + WRONG)
    assert again.returncode == 2
    assert "is there already" in unframed(again.stderr)
    again, points = scale(tmp_path, BARRIER + WRONG, "--resume")
    assert (again.returncode, len(points)) == (0, 3)
    again, points = scale(tmp_path, BARRIER + WRONG, "--retry")
    assert (again.returncode, len(points)) == (1, 4)


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    done, (point,) = scale(tmp_path, "timeout_s = 6\nrepeats = 1\n" + ENDLESS)
    assert (done.returncode, point.status) == (1, "timeout")
    assert time.monotonic() - began < 60
    assert "timeout in" in done.stdout


def test_what_does_not_fit_into_the_time_does_not_begin(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER, "--repeats", "50", "--budget", "8", "--ranks", "1")
    assert 1 <= len(points) < 50
    assert f"{50 - len(points)} runs did not fit into the time" in done.stdout


def test_an_interrupt_ends_the_ranks_and_keeps_what_was_done(tmp_path: Path) -> None:
    suite = "repeats = 1\n" + ENDLESS
    with subprocess.Popen(
        command(tmp_path, suite),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as job:
        placed = [*range(2)]

        def has_begun() -> bool:
            return bool(list(tmp_path.glob(".mpistrat-scale-*/placed")))

        assert wait_until(has_begun, 60, 0.1)
        mine = members(job.pid)
        assert len(mine) >= len(placed)
        job.send_signal(signal.SIGINT)
        output = job.communicate(timeout=30)[0]
    assert job.returncode == 130
    assert "interrupted; results.jsonl has what was done" in output
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in mine), 10, 0.1)
    assert not list(tmp_path.glob(".mpistrat-scale-*"))


def members(parent: int) -> list[int]:
    """Return the processes that a suite started, which have its runs' mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            environment = (folder / "environ").read_bytes()
        except OSError:  # it has ended
            continue
        is_rank = b"mpistrat.bench.scaling.rank" in words and words[0].endswith(b"python")
        if is_rank and TOKEN_VARIABLE.encode() in environment and int(folder.name) != parent:
            found.append(int(folder.name))
    return found


def test_it_says_that_it_starts_ranks_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, BARRIER),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PMI_RANK": "0", "PMI_SIZE": "1"},
    )
    assert done.returncode == 2
    assert "start it without mpirun" in unframed(done.stderr)


def test_a_launcher_that_is_not_there(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER, "--launch", "no-such-launcher -n {ranks}")
    assert done.returncode == 2
    assert "no-such-launcher" in unframed(done.stderr)
    assert "Traceback" not in done.stderr
    assert not points


def test_a_launcher_that_puts_ranks_elsewhere(tmp_path: Path) -> None:
    """Results would be told as those of two machines."""
    places = ("--nodes", "2", "--per-node", "1", "--ranks", "2")
    done, (point,) = scale(tmp_path, BARRIER, *places)
    assert (done.returncode, point.status) == (1, "failed")
    assert "started 2 ranks on 1 machines, expected 2 on 2" in point.message
    assert len(point.records) == 1


def test_the_runs_are_listed(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER, "--list")
    assert (done.returncode, points) == (0, [])
    runs = [f"collectives --ops barrier --rounds 5 --seconds 0.02, {n} on 1 node" for n in NAMES]
    assert sorted(done.stdout.splitlines()) == runs


NAMES = ("1 rank", "2 ranks")
ALLREDUCE = BARRIER.replace('"barrier"', '"allreduce"').replace("5,", '5, bytes = "8,1KiB,1MiB",')


def test_a_page_is_made_of_the_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done, _ = scale(tmp_path, ALLREDUCE, "--report", "page.html")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "wrote page.html, page-png" in done.stdout
    has_model = (tmp_path / "page-model.json").exists()
    assert has_model != ("no projection to more ranks" in done.stdout)
    assert "allreduce" in (tmp_path / "page.html").read_text()
    again, _ = scale(tmp_path, ALLREDUCE, "--report", "none/page.html", "--resume")
    assert again.returncode == 2
    assert "there is no folder none" in unframed(again.stderr)
