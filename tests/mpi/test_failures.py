"""What ends a job ends all of it, soon, and every rank says why.

Real programs under mpirun: their exit codes and what each rank wrote are looked at from outside.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import JobResult, find_launcher, run_job

ROOT = Path(mpistrat.__file__).parents[1]
SOON_S = 10.0
START_S = 5.0  # to launch Python on a busy machine
GRACE_S = 5.0

HEADER = """
import os, signal, sys, threading, time
import numpy as np
import mpistrat as ms
from mpistrat.testing.rank import rank_from_environment
{before}
strategy = ms.MirroredStrategy()
rank, size = strategy.extended.communicator.rank, strategy.extended.communicator.size
strategy.extended.communicator.barrier()
start = time.monotonic()

def replica():
    return ms.get_replica_context()
"""
# Written by each rank that got this far; how long it took the ranks to see the error.
FOOTER = """
sys.excepthook = lambda *error, hook=sys.excepthook: (
    print(f"saw it after {time.monotonic() - start:.1f} s", file=sys.stderr), hook(*error))
"""


def run(
    body: str, ranks: int = 3, before: str = "", timeout_s: float = 40.0, **env: str
) -> JobResult:
    """Run a program on all ranks; `body` follows the making of a strategy."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    program = HEADER.format(before=before) + FOOTER + body
    return run_job(["-c", program], ranks, timeout_s, env={"PYTHONPATH": path, **env})


def check_failed(result: JobResult, *words: str, within_s: float = SOON_S) -> None:
    """The job ended by itself with an error, and each rank shows all of `words`."""
    assert not result.timed_out, result.output
    assert result.returncode != 0, result.output
    assert result.duration_s < within_s + START_S, result.output
    for i, output in enumerate(result.ranks):
        for word in words:
            assert word in output.stderr, f"rank {i} does not say {word!r}\n{result.output}"


RAISES = """
def replica_fn():
    if rank == 1:
        raise ValueError("only on one rank")
    return {value}
"""


def test_replica_function_raises_on_one_rank() -> None:
    body = (
        RAISES.format(value="1.0") + 'strategy.reduce("SUM", strategy.run(replica_fn), axis=None)'
    )
    result = run(body)
    check_failed(result, "ValueError: only on one rank", "saw it after")
    assert "in replica_fn" in result.ranks[1].stderr
    for rank in (0, 2):
        assert "PeerLostError" in result.ranks[rank].stderr
        assert "rank 1 failed" in result.ranks[rank].stderr


def test_replica_function_raises_before_an_all_reduce_of_the_others() -> None:
    body = RAISES.format(value='replica().all_reduce("sum", 1.0)') + "strategy.run(replica_fn)"
    check_failed(run(body), "ValueError: only on one rank")


def test_replica_function_raises_on_two_of_three_ranks() -> None:
    body = """
def replica_fn():
    if rank > 0:
        raise ValueError(f"said by rank {rank}")
strategy.run(replica_fn)
strategy.reduce("SUM", 1.0, axis=None)
"""
    result = run(body)
    check_failed(result, "ValueError: said by rank")


def test_one_local_replica_raises() -> None:
    before = "ms.MirroredStrategy = lambda make=ms.MirroredStrategy: make(['CPU:0', 'CPU:1'])"
    body = """
def replica_fn():
    if replica().replica_id_in_sync_group == 2:
        raise ValueError("only in one replica")
    return replica().all_reduce("sum", 1.0)
strategy.run(replica_fn)
"""
    check_failed(run(body, ranks=2, before=before), "ValueError: only in one replica")


def test_program_raises_on_one_rank_outside_of_run() -> None:
    body = """
if rank == 0:
    raise KeyError("outside of run")
strategy.gather(np.ones(2), axis=0)
"""
    check_failed(run(body), "KeyError: 'outside of run'")


def test_error_on_all_ranks() -> None:
    """No rank has to be told: each shows its own error, and the job fails at once."""
    result = run("strategy.run(lambda: 1 / 0)")
    check_failed(result, "ZeroDivisionError: division by zero")


def test_mismatch_that_nobody_catches() -> None:
    result = run('strategy.reduce("SUM", np.ones(rank + 1), axis=None)')
    check_failed(result, "MismatchError", "shape=(1,)", "shape=(2,)", "shape=(3,)")


def test_caught_error_lets_the_job_end_well() -> None:
    body = """
try:
    strategy.run(lambda: 1 / 0)
except ZeroDivisionError:
    print("total", strategy.reduce("SUM", 1.0, axis=None))
"""
    result = run(body).check()
    assert [output.stdout for output in result.ranks] == ["total 3.0\n"] * 3


@pytest.mark.parametrize(
    "body",
    [
        # The rank computes while the others wait for it.
        """
if rank == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    strategy.run(lambda: time.sleep(30))
strategy.reduce("SUM", 1.0, axis=None)
""",
        # The rank waits in a collective that the others come to later.
        """
if rank == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
else:
    time.sleep(1.5)
strategy.reduce("SUM", 1.0, axis=None)
""",
        # The rank is ahead of the others in a row of short calls, in Python or in C++.
        """
if rank == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
array = np.ones(3)
while True:
    strategy.extended.communicator.allreduce(array)
    if rank == 0:
        time.sleep(1e-3)
""",
    ],
    ids=["while it computes", "while it waits", "in short calls"],
)
def test_interrupt_of_one_rank(body: str) -> None:
    check_failed(run(body), "KeyboardInterrupt")


@pytest.mark.parametrize("code", [3, 0])
def test_one_rank_exits_while_the_others_are_in_a_collective(code: int) -> None:
    """Even a clean exit is an error where the others still count on the rank."""
    body = f"""
if rank == 1:
    sys.exit({code})
strategy.reduce("SUM", np.ones(4), axis=None)
"""
    result = run(body)
    check_failed(result, "rank 1: close()", "allreduce(")


def test_all_ranks_exit_early_and_well() -> None:
    assert run("print('bye'); sys.exit(0)").check().ranks[2].stdout == "bye\n"


def test_all_ranks_exit_with_a_code() -> None:
    result = run("sys.exit(3)")
    assert result.returncode != 0
    assert result.duration_s < SOON_S


def test_one_rank_is_killed() -> None:
    body = """
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
strategy.reduce("SUM", np.ones(4), axis=None)
"""
    check_failed(run(body))


def test_failure_while_the_others_compute_for_long() -> None:
    """Who does not look up is ended after a grace, in which the others can say what they saw."""
    body = """
if rank == 1:
    raise RuntimeError("early")
if rank == 2:
    strategy.reduce("SUM", 1.0, axis=None)
time.sleep(60)
"""
    result = run(body)
    check_failed(result, within_s=GRACE_S + 3)
    assert "RuntimeError: early" in result.ranks[1].stderr
    assert "RuntimeError: early" in result.ranks[2].stderr


@pytest.mark.parametrize(
    ("before", "env"),
    [
        ("", {"MPISTRAT_TIMEOUT": "2"}),
        (
            "options = ms.experimental.CommunicationOptions(timeout_seconds=2)\n"
            "ms.MirroredStrategy = lambda: ms.MultiWorkerMirroredStrategy(None, options)",
            {},
        ),
    ],
    ids=["environment", "options"],
)
def test_timeout_names_the_missing_rank(before: str, env: dict[str, str]) -> None:
    body = """
if rank == 2:
    time.sleep(4)
strategy.reduce("SUM", 1.0, axis=None)
"""
    result = run(body, before=before, **env)
    check_failed(result, "CommunicationTimeoutError", "ranks that did not come: 2")
    assert "gave up" in result.ranks[2].stderr


def test_two_strategies_called_in_different_orders() -> None:
    body = """
second = ms.MirroredStrategy()
for one in (second, strategy) if rank == 1 else (strategy, second):
    one.reduce("SUM", np.ones(300), axis=None)
"""
    result = run(body)
    check_failed(result, "MismatchError", "in calls of different communicators", "<string>")
    assert all(_seen_after_s(one.stderr) < SOON_S for one in result.ranks), result.output


def test_one_rank_makes_another_strategy_while_the_others_reduce() -> None:
    body = """
if rank == 1:
    second = ms.MirroredStrategy()
strategy.reduce("SUM", np.ones(300), axis=None)
"""
    result = run(body)
    check_failed(result, "MismatchError", "in calls of different communicators", "<string>")
    assert all(_seen_after_s(one.stderr) < SOON_S for one in result.ranks), result.output


def _seen_after_s(stderr: str) -> float:
    """Return how long a rank took to see its error (see FOOTER)."""
    return float(stderr.split("saw it after ")[1].split(maxsplit=1)[0])


def test_one_rank_makes_no_strategy() -> None:
    before = """
if rank_from_environment() == 1:
    from mpi4py import MPI
    time.sleep(4)
    sys.exit("never made it")
"""
    result = run("", ranks=2, before=before, MPISTRAT_TIMEOUT="2")
    assert not result.timed_out, result.output
    assert result.returncode != 0
    assert "make this strategy" in result.ranks[0].stderr


def test_unequal_settings() -> None:
    before = "os.environ['MPISTRAT_FUSION_BYTES'] = str(1000 + (rank_from_environment() == 1))"
    result = run("", before=before)
    check_failed(result, "ClusterError", "MPISTRAT_FUSION_BYTES", "1000 on ranks [0, 2]", "[1]")


def test_one_rank_closes_while_the_others_reduce() -> None:
    """All are told; who catches the error can still end the program."""
    body = """
try:
    strategy.close() if rank == 0 else strategy.reduce("SUM", np.ones(2), axis=None)
except ms.errors.CommunicationError as error:
    print(error)
"""
    result = run(body, timeout_s=START_S + SOON_S)
    assert not result.timed_out, result.output
    for output in result.ranks:
        assert "rank 0: close()" in output.stdout
        assert "rank 1, 2: allreduce(" in output.stdout


def test_end_without_close() -> None:
    """Nothing has to be closed by hand, even if ranks end at different times."""
    body = """
others = [ms.MirroredStrategy() for _ in range(3)]
others[1].close()
time.sleep(0.3 * rank)
print("end")
"""
    assert [output.stdout for output in run(body).check().ranks] == ["end\n"] * 3


# -------------------------------------------------------------------------- without a launcher

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


def test_no_launcher() -> None:
    """One process works, and does not even load MPI."""
    result = alone()
    assert result.returncode == 0, result.stderr
    assert result.stdout == "1 2.0\nFalse\n"


@pytest.mark.parametrize("launcher", ANNOUNCED)
def test_silent_singleton_is_refused(launcher: str) -> None:
    result = alone(**ANNOUNCED[launcher])
    assert result.returncode != 0
    for word in (
        "ClusterError: the launcher announced 2 ranks",
        *[name for name in ANNOUNCED[launcher] if "SIZE" in name or "TASKS" in name],
        "but MPI sees 1",
        "do not belong together",
        "mpirun",
        "srun --mpi=pm",
        "MPISTRAT_ALLOW_SINGLETON=1",
    ):
        assert word in result.stderr, result.stderr


def test_singleton_on_purpose() -> None:
    result = alone(**ANNOUNCED["Slurm"], MPISTRAT_ALLOW_SINGLETON="1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1 2.0\n")


# ----------------------------------------------------------------- around the first strategy


def bare(program: str) -> JobResult:
    """Run `program` as it is on two ranks."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return run_job(["-c", program], 2, 20.0, env={"PYTHONPATH": path})


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
