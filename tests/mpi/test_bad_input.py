"""Bad input over 2 and 3 ranks: every rank gets the error, soon, and says what is wrong."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

import mpistrat
from mpistrat import (
    MirroredStrategy,
    OneDeviceStrategy,
    Strategy,
    Variable,
    VariableSynchronization,
    get_replica_context,
)
from mpistrat.errors import (
    ClosedError,
    CommunicationError,
    ContextError,
    MismatchError,
    PeerLostError,
)

pytestmark = pytest.mark.mpi(ranks=[2, 3])

SOON_S = 10.0


@contextmanager
def refused(kind: type[BaseException], match: str) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error on this rank within the time that the issue allows."""
    start = time.monotonic()
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert time.monotonic() - start < SOON_S


@contextmanager
def usable_after(*devices: str) -> Iterator[tuple[Strategy, int, int]]:
    """Give a strategy, this rank and their number; afterwards the strategy must still work."""
    with MirroredStrategy(devices or None) as strategy:
        communicator = strategy.extended.communicator
        yield strategy, communicator.rank, communicator.size
        result = strategy.run(lambda: np.ones(3))
        expected = np.full(3, 1.0 * strategy.num_replicas_in_sync)
        np.testing.assert_array_equal(strategy.reduce("SUM", result, axis=None), expected)


def abandon(strategy: Strategy) -> None:
    """Close a strategy that can no longer be used."""
    with suppress(CommunicationError):
        strategy.close()


def replica() -> mpistrat.ReplicaContext:
    found = get_replica_context()
    assert found is not None
    return found


# ---------------------------------------------------------------- ranks that call unequal things


def test_unequal_shapes() -> None:
    with usable_after() as (strategy, rank, size):
        with refused(MismatchError, "the ranks called different collectives") as caught:
            strategy.reduce("SUM", np.ones(2 + rank), axis=None)
        assert sorted(caught.value.calls) == list(range(size))
        for other in range(size):
            assert f"shape=({2 + other},)" in caught.value.calls[other]
            assert "test_bad_input.py" in caught.value.calls[other]


def test_unequal_shapes_of_one_length() -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "shape"):
        strategy.reduce("SUM", np.ones((2, 3) if rank else (3, 2)), axis=None)


def test_unequal_dtypes() -> None:
    either = r"float32(.|\n)*int32|int32(.|\n)*float32"
    with usable_after() as (strategy, rank, _), refused(MismatchError, either):
        strategy.reduce("SUM", np.ones(2, np.int32 if rank else np.float32), axis=None)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_unequal_reductions(dtype: Any) -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "the ranks called"):
        strategy.reduce("MEAN" if rank else "SUM", np.ones(2, dtype), axis=None)


def test_unequal_reductions_in_all_reduce() -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "the ranks called"):
        strategy.run(lambda: replica().all_reduce("mean" if rank else "sum", np.ones(2)))


@pytest.mark.parametrize("axes", [(0, 1), (None, 0)])
def test_unequal_axes_of_reduce(axes: tuple[int | None, int]) -> None:
    value = np.ones((3, 3))
    with usable_after() as (strategy, rank, _), refused(MismatchError, "the ranks called"):
        strategy.reduce("SUM", value, axis=axes[min(rank, 1)])


def test_unequal_axes_of_gather() -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "axis=0"):
        strategy.gather(np.ones((2, 2)), axis=min(rank, 1))


def test_unequal_lengths_beside_the_gathered_axis() -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "shape"):
        strategy.gather(np.ones((2, 2 + rank)), axis=0)


def test_unequal_number_of_leaves() -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "the ranks called"):
        strategy.reduce("SUM", [np.ones(2)] * (2 + min(rank, 1)), axis=None)


@pytest.mark.parametrize("axis", [None, 0])
def test_unequal_keys_of_a_nest(axis: int | None) -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "nest"):
        strategy.reduce("SUM", {"a": np.ones(2), "c" if rank else "b": np.ones(2)}, axis=axis)


def test_unequal_options_of_variables() -> None:
    kinds = (VariableSynchronization.AUTO, VariableSynchronization.ON_READ)
    with (
        usable_after() as (strategy, rank, _),
        refused(MismatchError, "ON_READ"),
        strategy.scope(),
    ):
        Variable(1.0, synchronization=kinds[min(rank, 1)])


def test_gather_of_a_bare_value_with_uneven_replicas() -> None:
    import mpi4py.MPI

    rank = mpi4py.MPI.COMM_WORLD.rank
    with MirroredStrategy([f"CPU:{i}" for i in range(1 + rank)]) as strategy:
        with refused(ValueError, "bare value"):
            strategy.gather(np.ones(2), axis=0)
        with pytest.raises(ValueError, match="out of range"):
            strategy.gather(np.ones(2), axis=7)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "x"])
def test_deadlines_are_checked_on_all_ranks(timeout: Any) -> None:
    with usable_after() as (strategy, _, _), refused(ValueError, "timeout="):
        strategy.extended.communicator.allreduce(np.ones(1000), timeout=timeout)


def test_unequal_order_of_calls() -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, r"allreduce\((.|\n)*allg"):
        if rank == 0:
            strategy.reduce("SUM", np.ones(2), axis=None)
        strategy.gather(np.ones(2), axis=0)


def test_unequal_variables() -> None:
    with usable_after() as (strategy, rank, _), strategy.scope():
        with refused(MismatchError, "bcast"):
            Variable(np.zeros(2 + rank))
        with refused(MismatchError, "bcast"):
            Variable(np.zeros(2, np.float32 if rank else np.float64))


def test_one_rank_calls_a_collective_in_run_and_the_others_do_not() -> None:
    strategy = MirroredStrategy()
    with refused(MismatchError, r"allgather\((.|\n)*allreduce\("):
        if strategy.extended.communicator.rank == 0:
            strategy.run(lambda: replica().all_gather(np.ones(2), axis=0))
        strategy.reduce("SUM", np.ones(2), axis=None)
    abandon(strategy)


# ------------------------------------------------------------- arguments that cannot be right

Call = Callable[[Strategy], Any]

BAD_CALLS: dict[str, tuple[Call, type[Exception], str]] = {
    "unknown op": (
        lambda s: s.reduce("MAX", np.ones(2), axis=None),
        ValueError,
        "'MAX' is not a valid ReduceOp",
    ),
    "op of a wrong type": (lambda s: s.reduce(3, np.ones(2), axis=None), TypeError, "expected"),
    "axis beyond": (lambda s: s.reduce("SUM", np.ones(2), axis=1), ValueError, "axis=1 is out of"),
    "axis below": (lambda s: s.reduce("MEAN", np.ones(2), axis=-2), ValueError, "axis=-2 is out"),
    "axis of a scalar": (lambda s: s.reduce("SUM", 1.0, axis=0), ValueError, "0-d"),
    "axis of a wrong type": (lambda s: s.reduce("SUM", np.ones(2), axis=0.5), TypeError, "axis="),
    "axis twice": (lambda s: s.reduce("SUM", np.ones((2, 2)), axis=(0, -2)), ValueError, "twice"),
    "gather axis beyond": (lambda s: s.gather(np.ones(2), axis=1), ValueError, "axis=1 is out"),
    "gather axis below": (lambda s: s.gather(np.ones(2), axis=-1), ValueError, "axis=-1"),
    "gather of 0-d": (lambda s: s.gather(1.0, axis=0), ValueError, "0-d array"),
    "objects": (
        lambda s: s.reduce("SUM", np.array([{}, None]), axis=None),
        TypeError,
        "dtype object",
    ),
    "gather of objects": (lambda s: s.gather(np.array([{}]), axis=0), TypeError, "dtype object"),
    "strings": (lambda s: s.reduce("SUM", "word", axis=None), TypeError, "dtype <U4"),
    "byte order": (
        lambda s: s.gather(np.array([1, 2]).astype(">i4"), axis=0),
        ValueError,
        "byte order",
    ),
    "None": (lambda s: s.reduce("SUM", None, axis=None), TypeError, "dtype object"),
    "objects in a nest": (
        lambda s: s.reduce("MEAN", {"a": np.ones(2), "b": np.array([{}])}, axis=None),
        TypeError,
        "dtype object",
    ),
    "unknown op in a replica": (
        lambda s: s.run(lambda: replica().all_reduce("prod", np.ones(2))),
        ValueError,
        "'PROD' is not a valid ReduceOp",
    ),
    "0-d gathered in a replica": (
        lambda s: s.run(lambda: replica().all_gather(1.0, axis=0)),
        ValueError,
        "0-d array",
    ),
    "objects made a variable": (
        lambda s: s.run(lambda: Variable(np.array([{}]))),
        TypeError,
        "dtype object",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_refused_on_all_ranks(name: str) -> None:
    """All ranks make the same mistake: each gets its own error, and the strategy works on."""
    call, kind, match = BAD_CALLS[name]
    with usable_after() as (strategy, _, _), refused(kind, match):
        call(strategy)


@pytest.mark.parametrize("name", [n for n in BAD_CALLS if "replica" not in n and "made" not in n])
def test_refused_on_one_rank(name: str) -> None:
    """One rank makes a mistake: it gets its error, and the others are told instead of hanging."""
    call, kind, match = BAD_CALLS[name]
    with usable_after() as (strategy, rank, _):
        if rank == 1:
            with refused(kind, match):
                call(strategy)
        else:
            with refused(MismatchError, match) as caught:
                strategy.reduce("SUM", np.ones(2), axis=None)
            assert "a call that it refused" in caught.value.calls[1]
            assert caught.value.calls[0].startswith("allreduce(")


@pytest.mark.parametrize("devices", [[], ["TPU:0"], ["CPU:0", "CPU:0"], "CPU:0", ["GPU:0"]])
def test_wrong_devices_on_all_ranks(devices: Any) -> None:
    with refused(Exception, "devices?="):
        MirroredStrategy(devices)
    with usable_after():
        pass


def test_wrong_devices_on_one_rank() -> None:
    """A strategy that one rank cannot make is an error on all, at once."""
    import mpi4py.MPI

    rank = mpi4py.MPI.COMM_WORLD.rank
    with refused(ValueError, "device"):
        MirroredStrategy(["CPU:0", "CPU:0"] if rank == 1 else ["CPU:0"])


def test_unknown_backend() -> None:
    with refused(ValueError, "backend='pigeon' is not known"):
        MirroredStrategy(backend="pigeon")


# ------------------------------------------------------------------------------ wrong contexts


def test_replica_and_cross_replica_calls_are_told_apart() -> None:
    with usable_after() as (strategy, _, _):

        def replica_fn() -> None:
            for call in (
                lambda: strategy.reduce("SUM", np.ones(2), axis=None),
                lambda: strategy.gather(np.ones(2), axis=0),
                lambda: strategy.run(lambda: None),
                lambda: strategy.scope().__enter__(),
                lambda: strategy.extended.reduce_to("SUM", np.ones(2), None),
                lambda: strategy.experimental_distribute_dataset(np.ones(2)),
                lambda: strategy.experimental_distribute_values_from_function(lambda _: 0),
            ):
                with refused(RuntimeError, "cross-replica context"):
                    call()

        strategy.run(replica_fn)


def test_a_replica_context_ends_with_its_replica() -> None:
    with usable_after() as (strategy, _, _):
        kept: list[mpistrat.ReplicaContext] = []
        strategy.run(lambda: kept.append(replica()))
        with refused(ContextError, "does not run now"):
            kept[0].all_reduce("sum", np.ones(2))


def test_nested_scopes_of_two_strategies() -> None:
    with usable_after() as (first, _, _), MirroredStrategy() as second:
        with first.scope():
            for call in (
                lambda: second.scope().__enter__(),
                lambda: second.run(lambda: None),
                lambda: second.reduce("SUM", np.ones(2), axis=None),
            ):
                with refused(RuntimeError, "Mixing different"):
                    call()
        one = OneDeviceStrategy("CPU:0")
        with second.scope(), refused(RuntimeError, "Mixing different"), one.scope():
            pass


def test_local_replicas_that_do_different_things() -> None:
    with usable_after("CPU:0", "CPU:1") as (strategy, _, _):

        def first_reduces() -> None:
            if replica().replica_id_in_sync_group % 2 == 0:
                replica().all_reduce("sum", np.ones(2))

        with refused(ContextError, r"has ended.*same collective|replica \d is in .*has ended"):
            strategy.run(first_reduces)

    with usable_after("CPU:0", "CPU:1") as (strategy, _, _):

        def unequal_ops() -> None:
            op = ["sum", "mean"][replica().replica_id_in_sync_group % 2]
            replica().all_reduce(op, np.ones(2))

        with refused(ValueError, "different reduce_op"):
            strategy.run(unequal_ops)


def test_closed_strategy() -> None:
    strategy = MirroredStrategy()
    with strategy.scope():
        variable = Variable(1.0)
    strategy.close()
    for call in (
        lambda: strategy.reduce("SUM", np.ones(2), axis=None),
        lambda: strategy.gather(np.ones(2), axis=0),
        lambda: strategy.run(lambda: None),
        lambda: strategy.scope().__enter__(),
    ):
        with refused(ClosedError, "closed"):
            call()
    assert float(variable) == 1.0
    strategy.close()


# ----------------------------------------------------------------- replica functions that raise


class MistakeError(Exception):
    """An error of the user's own."""


def fail() -> None:
    raise MistakeError("from the replica")


@pytest.mark.parametrize("devices", [1, 2])
def test_an_error_on_all_ranks_can_be_caught(devices: int) -> None:
    """All replicas raise alike; who catches it goes on with the same strategy."""
    with usable_after(*[f"CPU:{i}" for i in range(devices)]) as (strategy, _, size):
        for _ in range(3):
            with refused(MistakeError, "from the replica"):
                strategy.run(fail)
            values = strategy.run(lambda: np.float64(2))
            assert strategy.reduce("SUM", values, axis=None) == 2.0 * size * devices


def test_an_error_after_a_collective_can_be_caught() -> None:
    with usable_after() as (strategy, _, size):

        def replica_fn() -> None:
            raise MistakeError(float(replica().all_reduce("sum", 1.0)))

        for _ in range(3):
            with refused(MistakeError, f"{size}.0"):
                strategy.run(replica_fn)


def test_a_strategy_made_after_a_caught_error_works() -> None:
    """What the ranks told each other about an old strategy means nothing to a new one."""
    for _ in range(20):
        with MirroredStrategy() as strategy, refused(MistakeError, "from the replica"):
            strategy.run(fail)
        with MirroredStrategy() as strategy:
            rank, size = strategy.extended.communicator.rank, strategy.num_replicas_in_sync
            time.sleep(0.002 * rank)  # the others wait, and so listen
            assert strategy.reduce("SUM", 1.0, axis=None) == size


def test_an_error_on_one_rank_reaches_all() -> None:
    """One replica raises and its rank goes on elsewhere: the others are told at their call."""
    strategy = MirroredStrategy()
    rank = strategy.extended.communicator.rank
    if rank == 1:
        with refused(MistakeError, "from the replica"):
            strategy.run(fail)
        time.sleep(1.0)
        with refused(CommunicationError, "rank"):
            strategy.reduce("SUM", np.ones(2), axis=None)
    else:
        strategy.run(lambda: None)
        with refused(PeerLostError, "rank 1 failed with MistakeError: from the replica"):
            strategy.reduce("SUM", np.ones(2), axis=None)
    with refused(CommunicationError, "broken on rank|gave up"):
        strategy.reduce("SUM", np.ones(2), axis=None)
    abandon(strategy)


def test_an_error_on_one_rank_meets_the_others_in_the_same_call() -> None:
    """The rank that failed catches its error and makes the next call as if nothing had been."""
    strategy = MirroredStrategy()
    if strategy.extended.communicator.rank == 1:
        with refused(MistakeError, "from the replica"):
            strategy.run(fail)
    else:
        strategy.run(lambda: None)
        time.sleep(0.5)
    with refused(CommunicationError, "MistakeError: from the replica"):
        strategy.reduce("SUM", np.ones(2), axis=None)
    abandon(strategy)
