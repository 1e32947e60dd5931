"""An error on some ranks, or all: it ends the whole job, soon, and every rank says why.

Real programs under mpirun: their exit codes and what each rank wrote are looked at from outside.
"""

from helpers.strategy.failing_job import SOON_S, check_failed, run
from mpistrat.testing.sets import takes_long

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


@takes_long()
def test_replica_function_raises_before_an_all_reduce_of_the_others() -> None:
    body = RAISES.format(value='replica().all_reduce("sum", 1.0)') + "strategy.run(replica_fn)"
    check_failed(run(body, 2), "ValueError: only on one rank")


@takes_long()
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


@takes_long()
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
    check_failed(run(body, 2), "KeyError: 'outside of run'")


@takes_long()
def test_error_on_all_ranks() -> None:
    """No rank has to be told: each shows its own error, and the job fails at once."""
    result = run("strategy.run(lambda: 1 / 0)", 2)
    check_failed(result, "ZeroDivisionError: division by zero")


@takes_long()
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
    result = run(body, 2).check()
    assert [output.stdout for output in result.ranks] == ["total 2.0\n"] * 2


@takes_long()
def test_two_strategies_called_in_different_orders() -> None:
    body = """
second = ms.MirroredStrategy()
for one in (second, strategy) if rank == 1 else (strategy, second):
    one.reduce("SUM", np.ones(300), axis=None)
"""
    result = run(body, 2)
    check_failed(result, "MismatchError", "in calls of different communicators", "<string>")
    assert all(_seen_after_s(one.stderr) < SOON_S for one in result.ranks), result.output


@takes_long()
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


@takes_long()
def test_unequal_settings() -> None:
    before = "os.environ['MPISTRAT_FUSION_BYTES'] = str(1000 + (rank_from_environment() == 1))"
    result = run("", before=before)
    check_failed(result, "ClusterError", "MPISTRAT_FUSION_BYTES", "1000 on ranks [0, 2]", "[1]")
