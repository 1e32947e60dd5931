"""Programs before their first strategy: whether they are ranks at all, and who never makes one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import JobResult, find_launcher, run_job
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]


ALONE = """
import sys
import mpistrat as ms
with ms.MirroredStrategy() as strategy:
    print(strategy.num_replicas_in_sync, strategy.reduce("SUM", 2.0, axis=None))
print("mpi4py" in sys.modules)
"""

# As a launcher would announce two ranks to a process whose MPI knows nothing of it.
ANNOUNCED = {
    "Open MPI": {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
    "Slurm": {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"},
}


def alone(**variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program on its own, in an environment without a launcher's variables."""
    environment = {**find_launcher().environment(), "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-c", ALONE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@takes_long()
def test_no_launcher() -> None:
    """One process works, and does not even load MPI."""
    result = alone()
    assert result.returncode == 0, result.stderr
    assert result.stdout == "1 2.0\nFalse\n"


@takes_long()
@pytest.mark.parametrize("launcher", ANNOUNCED)
def test_silent_singleton_is_refused(launcher: str) -> None:
    result = alone(**ANNOUNCED[launcher])
    assert result.returncode != 0
    for word in (
        "ClusterError: the launcher announced 2 ranks",
        *[name for name in ANNOUNCED[launcher] if "SIZE" in name or "TASKS" in name],
        "but MPI sees 1",
        "do not belong together",
        "`srun --mpi=pm" if launcher == "Slurm" else "mpirun -n 2 ",
        "`mpistrat doctor`",
        "MPISTRAT_ALLOW_SINGLETON=1",
    ):
        assert word in result.stderr, result.stderr


@takes_long()
def test_singleton_on_purpose() -> None:
    result = alone(**ANNOUNCED["Slurm"], MPISTRAT_ALLOW_SINGLETON="1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1 2.0\n")


def bare(program: str, ranks: int = 2) -> JobResult:
    """Run `program` as it is on two ranks, or more."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return run_job(["-c", program], ranks, 20.0, env={"PYTHONPATH": path})


@takes_long()
def test_a_forked_child_is_no_rank() -> None:
    """A forked child leaves the job alone, and its calls are refused."""
    program = """
import os, sys, mpistrat
strategy = mpistrat.MirroredStrategy()
for code in (0, 3):
    child = os.fork()
    if child == 0:
        try:
            strategy.reduce("SUM", 1.0)
        except RuntimeError as error:
            assert "forked" in str(error)
        os._exit(code)  # as multiprocessing does: MPI_Finalize is not for a child
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
assert strategy.reduce("SUM", 1.0) == 2.0
print("well")
"""
    result = bare(program)
    result.check()
    assert all("well" in rank.stdout for rank in result.ranks)


@pytest.mark.parametrize("end", ["raise ValueError('no data here')", "sys.exit('no data here')"])
def test_one_rank_ends_before_mpi_starts(end: str) -> None:
    """The others are in MPI_Init, where nobody can tell them anything: the job ends."""
    program = f"""
import os, sys, mpistrat
rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK"))
if rank == 1:
    {end}
mpistrat.MirroredStrategy()
"""
    result = bare(program)
    assert result.returncode != 0
    assert not result.timed_out
    assert "no data here" in result.ranks[1].stderr


def test_one_rank_raises_between_mpi_and_its_first_strategy() -> None:
    program = """
from mpi4py import MPI
import mpistrat
if MPI.COMM_WORLD.rank == 1:
    raise ValueError("no data here")
mpistrat.MirroredStrategy()
"""
    result = bare(program)
    assert result.returncode != 0
    assert not result.timed_out
    assert "no data here" in result.ranks[1].stderr


@pytest.mark.parametrize("status", [0, 3])
def test_one_rank_exits_between_mpi_and_its_first_strategy(status: int) -> None:
    """The others are told, long before their deadline, and the job ends with that status."""
    result = bare(f"""
import sys
from mpi4py import MPI
import mpistrat
if MPI.COMM_WORLD.rank == 1:
    sys.exit({status})
mpistrat.MirroredStrategy()
""")
    assert not result.timed_out
    assert result.returncode == (status or 1), result.output
    told = "PeerLostError: the making of a strategy or communicator cannot finish: the program of"
    assert f"{told} rank 1 has ended (exit status {status})" in result.ranks[0].stderr


def test_one_rank_exits_before_its_server() -> None:
    program = """
import sys, mpistrat
resolver = mpistrat.cluster_resolver.MPIClusterResolver(num_ps=1)
if resolver.task_type == "ps":
    sys.exit(4)
if resolver.task_type == "chief":
    mpistrat.ParameterServerStrategy(resolver)
mpistrat.Server(resolver).join()
"""
    result = bare(program, 3)
    assert not result.timed_out
    assert result.returncode == 4, result.output
    for rank in result.ranks[:2]:
        assert "the program of rank 2 has ended (exit status 4)" in rank.stderr


@takes_long()
def test_a_strategy_that_a_hook_makes_at_the_end_of_the_program() -> None:
    """The hook was there before the package, whose own hooks have told that the program ends."""
    result = bare(
        """
import atexit, time
def make():
    with mpistrat.MirroredStrategy() as strategy:
        print(strategy.reduce("SUM", 1.0, axis=None))
atexit.register(make)
import mpistrat
with mpistrat.MirroredStrategy() as strategy:
    rank = strategy.communicator.rank
if rank == 2:
    time.sleep(3)  # the others wait for it in their hooks
""",
        3,
    )
    result.check()
    assert [rank.stdout for rank in result.ranks] == ["3.0\n"] * 3


def test_programs_that_end_after_their_strategies_leave_no_files(tmp_path: Path) -> None:
    program = "import mpistrat\nwith mpistrat.MirroredStrategy() as strategy:\n    pass"
    env = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    run_job(["-c", program], 2, 20.0, env=env).check()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("mpistrat-")]
