"""Ranks for which the others wait in MPI_Init, and which do not come: no job hangs there.

Ranks that end with mpistrat imported are in test_ends_before_mpi_starts.py.
"""

import os
from pathlib import Path

import pytest

import mpistrat
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import JobResult, run_job
from mpistrat.testing.launching.mpirun import find_launcher
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]
ENDS_S = 15.0

pytestmark = pytest.mark.skipif(why_no_kernels() is not None, reason="the kernels look after it")


def run(first: str, **env: str) -> JobResult:
    """Run `first` on rank 1, which is not to make a strategy as soon as the others, if at all."""
    program = f"""
import os, signal, sys, time
rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK"))
if rank == 1:
    {first}
import mpistrat
with mpistrat.MirroredStrategy() as strategy:
    print(strategy.reduce("SUM", 1.0, axis=None))
"""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return run_job(["-c", program], 3, 2 * ENDS_S, env={"PYTHONPATH": path, **env})


@pytest.mark.parametrize(
    "end",
    [
        "raise ImportError('no such data file')",
        pytest.param("sys.exit(0)", marks=takes_long()),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", marks=takes_long()),
    ],
)
def test_a_rank_ends_before_it_imports_mpistrat(end: str) -> None:
    is_seen = find_launcher().kind == "mpich"  # else the launcher ends the job, or the deadline
    result = run(end, **({} if is_seen else {"MPISTRAT_TIMEOUT": "5"}))
    assert not result.timed_out, result
    assert result.returncode != 0
    assert result.duration_s < ENDS_S
    if is_seen and "kill" not in end:  # of a rank that is killed it hears first
        assert "cannot start MPI: a rank of this node has ended" in result.output
        assert "rank 1 has not begun to" in result.output


def test_a_rank_does_not_come() -> None:
    result = run("time.sleep(60)", MPISTRAT_TIMEOUT="3")
    assert not result.timed_out, result
    assert result.returncode != 0
    assert result.duration_s < ENDS_S
    assert "has waited 3 s (MPISTRAT_TIMEOUT) for the other ranks to start MPI" in result.output
    assert "rank 1 has not begun to" in result.output


def test_a_rank_that_comes_in_time_is_waited_for() -> None:
    result = run("time.sleep(2)").check()
    assert [one.stdout for one in result.ranks] == ["3.0\n"] * 3


@takes_long()
@pytest.mark.skipif(find_launcher().kind != "mpich", reason="other launchers end such a job")
def test_a_rank_may_be_another_process_than_the_launcher_started() -> None:
    """As a terminal's, in which a debugger runs it."""
    first = """
    if os.fork():
        os._exit(0)
    time.sleep(8)
    """
    result = run(first.strip())
    assert not result.timed_out, result
    assert "cannot start MPI" not in result.output
    assert [one.stdout for one in result.ranks] == ["3.0\n"] * 3
