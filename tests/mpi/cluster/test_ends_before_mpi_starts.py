"""Ranks that exit with 0 before MPI starts: all may; if some do, the others must not hang.

Failures before MPI starts are in test_before_first_strategy.py.
"""

import os
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import JobResult, run_job
from mpistrat.testing.sets import repeats, takes_long

ROOT = Path(mpistrat.__file__).parents[1]
SOON_S = 10.0
HEADER = """
import os, subprocess, sys, time
from pathlib import Path
rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK"))
import mpistrat

def wait_for(state, ranks):  # until so many have written to the job's file that they are there
    end = time.monotonic() + 15
    files = lambda: Path(os.environ["TMPDIR"]).glob("mpistrat-*")
    while sum(one.read_text().count(state) for one in files()) < ranks:
        assert time.monotonic() < end
        time.sleep(0.01)
"""


def run(program: str, tmp_path: Path) -> JobResult:
    """Run `program` as it is on three ranks."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    return run_job(["-c", HEADER + program], 3, 20.0, env=env)


def left_behind(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.iterdir() if path.name.startswith("mpistrat-")]


@pytest.mark.parametrize(
    "end",
    ["sys.exit(0) if rank == 0 else exec('raise SystemExit' if rank == 1 else '')", "os._exit(0)"],
)
def test_all_ranks_end_before_mpi_starts(end: str, tmp_path: Path) -> None:
    """As with --help: the job ends well, whichever way and order the ranks end in."""
    result = run(f"time.sleep(0.2 * rank)\nprint('usage', flush=True)\n{end}", tmp_path).check()
    assert [output.text for output in result.ranks] == ["usage\n"] * 3
    assert not left_behind(tmp_path)


@pytest.mark.parametrize(
    "end", ["sys.exit(0)", pytest.param("raise SystemExit", marks=repeats()), "pass"]
)
def test_one_rank_ends_while_the_others_wait_in_mpi_init(end: str, tmp_path: Path) -> None:
    result = run(
        f"""
if rank == 1:
    wait_for("starts", 2)
    {end}
else:
    mpistrat.MirroredStrategy()
""",
        tmp_path,
    )
    assert not result.timed_out, result.output
    assert result.returncode != 0
    assert result.duration_s < SOON_S
    assert "rank 1/3 ended before starting MPI, but ranks 0, 2 cannot" in result.ranks[1].stderr


def test_one_rank_ends_before_the_others_come(tmp_path: Path) -> None:
    result = run(
        """
if rank == 1:
    sys.exit(0)
wait_for("left", 1)
mpistrat.MirroredStrategy()
""",
        tmp_path,
    )
    assert not result.timed_out, result.output
    assert result.returncode != 0
    assert result.duration_s < SOON_S
    assert "cannot start MPI: rank 1 ended before starting it" in result.output


@takes_long()
def test_programs_that_a_rank_starts_are_no_ranks(tmp_path: Path) -> None:
    """A child knows the launcher's variables too; it may end before its parent starts MPI."""
    result = run(
        """
if rank == 1:
    subprocess.run([sys.executable, "-c", "import mpistrat"], check=True)
    os.system(f"{sys.executable} -c 'import mpistrat'")
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
with mpistrat.MirroredStrategy() as strategy:
    print(strategy.reduce("SUM", 1.0, axis=None))
""",
        tmp_path,
    )
    assert [output.stdout for output in result.check().ranks] == ["3.0\n"] * 3
    assert not left_behind(tmp_path)
