"""`run_job`: programs under mpirun, their output by rank, and their end whatever they do."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import JobResult, LauncherError, run_job
from mpistrat.testing.launching import processes
from mpistrat.testing.launching.running_job import RunningJob
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]


def run(code: str, ranks: int, **options) -> JobResult:
    header = "import os, signal, sys, time\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
    return run_job(["-c", header + code], ranks, **options)


def all_gone(pids: list[int], within_s: float = 0.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(map(processes.is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(processes.is_alive, pids))


@pytest.mark.parametrize("ranks", [1, 3])
def test_output_comes_by_rank(ranks: int) -> None:
    result = run("print(comm.rank, comm.size)\nprint('e', comm.rank, file=sys.stderr)", ranks)
    assert result.check() is result
    assert [output.stdout for output in result.ranks] == [f"{i} {ranks}\n" for i in range(ranks)]
    for i, output in enumerate(result.ranks):
        assert f"e {i}\n" in output.stderr
        assert output.text in result.output + "\n"


@takes_long()
def test_output_of_c_code_and_children_is_the_ranks(tmp_path: Path) -> None:
    result = run("os.system(f'echo child {comm.rank}'); os.write(1, b'raw')", 2, cwd=tmp_path)
    assert [output.stdout for output in result.check().ranks] == ["child 0\nraw", "child 1\nraw"]


def test_program_starts_as_under_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("word = 'helped'\n")
    script = tmp_path / "script.py"
    script.write_text("import helper, sys\nprint(__name__, helper.word, sys.argv[1:])\n")
    for argv in ([str(script), "a", "b"], ["-m", "script", "a", "b"]):
        result = run_job(argv, 1, cwd=tmp_path, env={"MPISTRAT_X": "1"}).check()
        assert result.ranks[0].stdout == "__main__ helped ['a', 'b']\n"


def test_exit_status_of_one_rank_is_the_jobs() -> None:
    result = run("sys.exit(3 * (comm.rank == 1))", 2)
    assert result.returncode != 0
    assert not result.timed_out
    with pytest.raises(LauncherError, match="job of 2 ranks exited with"):
        result.check()


def test_exception_on_one_rank_shows_in_its_output() -> None:
    result = run("if comm.rank == 1: raise ValueError('only here')", 2)
    assert result.returncode != 0
    assert "ValueError: only here" in result.ranks[1].stderr
    assert "only here" not in result.ranks[0].stderr


@takes_long()
def test_hang_ends_at_the_deadline_with_every_stack() -> None:
    code = """
def stuck_here():
    comm.recv(source=0) if comm.rank == 0 else time.sleep(1000)
print(os.getpid())
stuck_here()
"""
    result = run(code, 2, timeout_s=4)  # by then they are there, on a busy machine, too
    assert result.timed_out
    for output in result.ranks:
        assert "in stuck_here" in output.stderr
    assert all_gone([int(output.stdout) for output in result.ranks])


@takes_long()
def test_nothing_survives_the_deadline() -> None:
    """Ranks that ignore SIGTERM, and children that left their process group, are killed too."""
    code = """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(os.getpid(), child.pid)
time.sleep(1000)
"""
    result = run(code, 2, timeout_s=2)
    assert result.timed_out
    assert all_gone([int(pid) for output in result.ranks for pid in output.stdout.split()])


def test_lines_are_waited_for_until_they_are_whole() -> None:
    code = """
import sys, time
from mpi4py import MPI
print("begun", end="")
time.sleep(0.3)
print("", MPI.COMM_WORLD.Get_rank())
time.sleep(1000)
"""
    job = RunningJob(["-c", code], 2)
    try:
        assert job.wait_for("begun") == ["begun 0", "begun 1"]
        assert job.wait_for("begun", [1]) == ["begun 1"]
        with pytest.raises(TimeoutError, match=r"'well' of ranks \[0\] in 0.1 s; got \['begun 0"):
            job.wait_for("well", [0], 0.1)
    finally:
        job.close()


def test_lines_of_a_job_that_has_ended_are_not_waited_for() -> None:
    job = RunningJob(["-c", "print('well'); print('not whole', end='')"], 2)
    try:
        assert job.wait_for("well") == ["well", "well"]
        with pytest.raises(TimeoutError, match=r"'whole' of ranks \[0, 1\] until mpirun ended"):
            job.wait_for("whole")
    finally:
        job.close()


@takes_long()
def test_nothing_survives_a_killed_launching_process(tmp_path: Path) -> None:
    """The ranks end when the process that launched them is killed and cannot clean up."""
    code = "import os, time; print(os.getpid()); time.sleep(1000)"
    parent = tmp_path / "parent.py"
    parent.write_text(
        "from mpistrat.testing.launcher import RunningJob\n"
        "import time\n"
        f"job = RunningJob(['-c', {code!r}], 2)\n"
        "while len(job.pids()) < 2: time.sleep(0.01)\n"
        "print(*job.pids().values(), job.folder, flush=True)\n"
        "time.sleep(1000)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, parent], stdout=subprocess.PIPE, env=environment) as it:
        assert it.stdout is not None
        *pids, folder = it.stdout.readline().decode().split()
        it.send_signal(signal.SIGKILL)
    shutil.rmtree(folder)
    assert len(pids) == 2
    assert all_gone([int(pid) for pid in pids], within_s=5.0)
