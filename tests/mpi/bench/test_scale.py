"""``mpistrat bench scale`` on real ranks: what it records of runs that end well, or do not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("typer")

from helpers.bench.framed_text import unframed
from mpistrat.bench.results.file import read_points
from mpistrat.bench.results.point import Point
from mpistrat.system.waiting import wait_until
from mpistrat.testing.launching.processes import is_alive
from mpistrat.testing.sets import takes_long

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
RUNNING = ".mpistrat-scale-results.jsonl-"


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


@takes_long()
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


@takes_long()
def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    done, (point,) = scale(tmp_path, "timeout_s = 6\nrepeats = 1\n" + ENDLESS)
    assert (done.returncode, point.status) == (1, "timeout")
    assert time.monotonic() - began < 60
    assert "timeout in" in done.stdout


@takes_long()
def test_what_does_not_fit_into_the_time_does_not_begin(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER, "--repeats", "50", "--budget", "8", "--ranks", "1")
    assert 1 <= len(points) < 50
    assert f"{50 - len(points)} runs did not fit into the time" in done.stdout


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[subprocess.Popen, list[int]]]:
    """Yield a suite whose run has begun and does not end, and its ranks."""
    with subprocess.Popen(
        command(tmp_path, "repeats = 1\n" + ENDLESS),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as job:
        try:
            assert wait_until(lambda: list(tmp_path.glob(f"{RUNNING}*/placed")), 60, 0.1)
            mine = ranks_below(tmp_path)
            assert len(mine) == 2
            yield job, mine
        finally:
            job.kill()


@takes_long()
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_ranks_and_keeps_what_was_done(
    number: signal.Signals, endless: tuple[subprocess.Popen, list[int]], tmp_path: Path
) -> None:
    job, mine = endless
    job.send_signal(number)
    time.sleep(0.3)
    job.send_signal(number)  # an impatient user
    output = job.communicate(timeout=30)[0]
    assert job.returncode == 128 + number
    assert f"ended by {number.name}; results.jsonl has what was done" in output
    assert wait_until(lambda: not any(map(is_alive, mine)), 10, 0.1)
    assert not list(tmp_path.glob(".mpistrat-scale-*"))


@takes_long()
def test_ranks_of_a_suite_that_is_killed_end(
    endless: tuple[subprocess.Popen, list[int]], tmp_path: Path
) -> None:
    job, mine = endless
    job.kill()
    assert wait_until(lambda: not any(map(is_alive, mine)), 20, 0.1)
    assert list(tmp_path.glob(f"{RUNNING}*"))
    done, points = scale(tmp_path, BARRIER, "--resume")
    assert (done.returncode, len(points)) == (0, 2)
    assert not list(tmp_path.glob(".mpistrat-scale-*"))  # the killed one's folder, too


@takes_long()
def test_one_suite_at_a_time_writes_to_a_file(
    endless: tuple[subprocess.Popen, list[int]], tmp_path: Path
) -> None:
    done, points = scale(tmp_path, BARRIER, "--resume")
    assert (done.returncode, points) == (2, [])
    assert "another suite writes to it" in unframed(done.stderr)


def ranks_below(folder: Path) -> list[int]:
    """Return the ranks of runs whose result file is in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        is_rank = b"mpistrat.bench.scaling.rank" in words and words[0].endswith(b"python")
        if is_rank and any(word.startswith(os.fsencode(folder)) for word in words):
            found.append(int(entry.name))
    return found


@takes_long()
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


@takes_long()
def test_a_launcher_that_is_not_there(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER, "--launch", "no-such-launcher -n {ranks}")
    assert done.returncode == 2
    assert "no-such-launcher" in unframed(done.stderr)
    assert "Traceback" not in done.stderr
    assert not points


@takes_long()
def test_a_launcher_that_puts_ranks_elsewhere(tmp_path: Path) -> None:
    """Results would be told as those of two machines."""
    places = ("--nodes", "2", "--per-node", "1", "--ranks", "2")
    done, (point,) = scale(tmp_path, BARRIER, *places)
    assert (done.returncode, point.status) == (1, "failed")
    assert "started 2 ranks on 1 machines, expected 2 on 2" in point.message
    assert len(point.records) == 1


@takes_long()
def test_the_runs_are_listed(tmp_path: Path) -> None:
    done, points = scale(tmp_path, BARRIER, "--list")
    assert (done.returncode, points) == (0, [])
    runs = [f"collectives --ops barrier --rounds 5 --seconds 0.02, {n} on 1 node" for n in NAMES]
    assert sorted(done.stdout.splitlines()) == runs


NAMES = ("1 rank", "2 ranks")
ALLREDUCE = BARRIER.replace('"barrier"', '"allreduce"').replace("5,", '5, bytes = "8,1KiB,1MiB",')


@takes_long()
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


PRINTS = """
import sys, time
for _ in range(200):
    sys.stdout.write("x" * (1 << 20))
time.sleep(99)
"""


@takes_long()
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (PRINTS, "ended, since it printed more than 64 MiB"),
        ("", "the launcher started 0 ranks on 0 machines, expected 2 on 1"),
        ("open(FOLDER + 'placed', 'w').write('[1]\\n')", "cannot be read"),
        ("open(FOLDER + 'json', 'wb').write(b'\\xff\\n')", "cannot be read"),
        ("open(FOLDER + 'json', 'w').write('7\\n')", "cannot be read"),
    ],
)
def test_what_a_launcher_should_not_do_fails_its_run(
    program: str, words: str, tmp_path: Path
) -> None:
    """The launcher is a program that gets the command of a rank."""
    launcher = tmp_path / "launcher.py"
    folder = "FOLDER = __import__('sys').argv[5].removesuffix('placed')\n"
    launcher.write_text(folder + program)
    launch = f"{sys.executable} {launcher} {{ranks}}"
    done, (point,) = scale(tmp_path, BARRIER, "--launch", launch, "--ranks", "2")
    assert (done.returncode, point.status) == (1, "failed")
    assert words in point.message, point.message
