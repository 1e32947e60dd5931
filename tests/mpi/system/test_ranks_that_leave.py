"""Ranks that leave their job, by exit, signal, interrupt or close, or do not come to a call.

Real programs under mpirun: their exit codes and what each rank wrote are looked at from outside.
"""

import pytest

from helpers.strategy.failing_job import SOON_S, START_S, check_failed, run
from mpistrat.testing.sets import repeats, takes_long

GRACE_S = 1.0  # how long ranks that compute may go on after a failure


@takes_long()
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
    time.sleep(0.9)
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
    check_failed(run(body, 2), "KeyboardInterrupt")


@takes_long()
@pytest.mark.parametrize("code", [3, 0])
def test_one_rank_exits_while_the_others_are_in_a_collective(code: int) -> None:
    """Even a clean exit is an error where the others still count on the rank."""
    body = f"""
if rank == 1:
    sys.exit({code})
strategy.reduce("SUM", np.ones(4), axis=None)
"""
    result = run(body, 2)
    told = "rank 1: close() at the end of the program"
    check_failed(
        result, f"{told}, after a call of sys.exit(3)" if code else f"{told}\n", "allreduce("
    )
    assert result.returncode == (code or 1), result.output


def test_a_rank_ends_while_the_others_make_another_strategy() -> None:
    result = run("if rank != 1: ms.MirroredStrategy()")
    check_failed(result)
    for rank in (0, 2):
        assert "cannot finish: the program of rank 1 has ended" in result.ranks[rank].stderr
    why = "[mpistrat] at the end of the program: two ranks wait for each other in calls of differ"
    assert why in result.ranks[1].stderr
    assert "the making of a strategy or communicator at" in result.ranks[1].stderr


def test_a_rank_ends_while_another_calls_its_second_communicator() -> None:
    body = """
from mpistrat.collectives import Communicator
first, second = Communicator(), Communicator()
if rank == 0:
    second.allreduce(np.ones(1))
"""
    check_failed(run(body, 2), "rank 1: close() at the end of the program", "allreduce(")


def test_a_rank_ends_while_another_goes_on_after_an_error_in_its_second_communicator() -> None:
    body = """
from mpistrat.collectives import Communicator
first, second = Communicator(), Communicator()
if rank == 0:
    try:
        second.allreduce(np.ones(1))
    except ms.errors.MismatchError as error:
        print("caught", error, flush=True)
    second.barrier()
"""
    result = run(body, 2, MPISTRAT_TIMEOUT="60")
    check_failed(result)
    assert "caught the ranks called different collectives" in result.ranks[0].stdout
    assert "the program of rank 1 has ended with an error" in result.ranks[0].stderr


@takes_long()
def test_all_ranks_exit_with_a_code() -> None:
    result = run("sys.exit(3)", 2)
    assert result.returncode != 0
    assert result.duration_s < SOON_S


@takes_long()
def test_one_rank_is_killed() -> None:
    body = """
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
strategy.reduce("SUM", np.ones(4), axis=None)
"""
    check_failed(run(body, 2))


@takes_long()
def test_failure_while_the_others_compute_for_long() -> None:
    """Who does not look up is ended after a grace, in which the others can say what they saw."""
    body = """
if rank == 1:
    raise RuntimeError("early")
if rank == 2:
    strategy.reduce("SUM", 1.0, axis=None)
time.sleep(60)
"""
    result = run(body, MPISTRAT_GRACE=str(GRACE_S))
    check_failed(result, within_s=GRACE_S + 3)
    assert "RuntimeError: early" in result.ranks[1].stderr
    assert "RuntimeError: early" in result.ranks[2].stderr


@pytest.mark.parametrize(
    ("before", "env"),
    [
        ("", {"MPISTRAT_TIMEOUT": "2"}),
        pytest.param(
            "options = ms.experimental.CommunicationOptions(timeout_seconds=2)\n"
            "ms.MirroredStrategy = lambda: ms.MultiWorkerMirroredStrategy(None, options)",
            {},
            marks=repeats(),
        ),
    ],
    ids=["environment", "options"],
)
def test_timeout_names_the_missing_rank(before: str, env: dict[str, str]) -> None:
    body = """
if rank == 2:
    time.sleep(2.5)
strategy.reduce("SUM", 1.0, axis=None)
"""
    result = run(body, before=before, **env)
    check_failed(result, "CommunicationTimeoutError", "ranks that did not come: 2")
    assert "gave up" in result.ranks[2].stderr


@takes_long()
def test_one_rank_makes_no_strategy() -> None:
    before = """
if rank_from_environment() == 1:
    from mpi4py import MPI
    time.sleep(3)
    sys.exit("never made it")
"""
    result = run("", ranks=2, before=before, MPISTRAT_TIMEOUT="2", MPISTRAT_GRACE=str(GRACE_S))
    assert not result.timed_out, result.output
    assert result.returncode != 0
    assert "make this strategy" in result.ranks[0].stderr


@takes_long()
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


@takes_long()
def test_end_without_close() -> None:
    """Nothing has to be closed by hand, even if ranks end at different times, or by an exit."""
    body = """
others = [ms.MirroredStrategy() for _ in range(3)]
others[1].close()
time.sleep(0.3 * rank)
print("end")
if rank != 1:
    sys.exit(0)
"""
    assert [output.stdout for output in run(body).check().ranks] == ["end\n"] * 3
