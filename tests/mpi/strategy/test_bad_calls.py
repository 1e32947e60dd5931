"""Arguments that cannot be right, and calls in a wrong context, on all ranks or on one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpistrat
from helpers.mistakes import refused, replica, usable_after
from mpistrat import (
    MirroredStrategy,
    OneDeviceStrategy,
    Strategy,
    Variable,
    VariableAggregation,
)
from mpistrat.errors import ClosedError, ContextError, MismatchError

pytestmark = pytest.mark.mpi(ranks=[2, 3])
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
    "None": (lambda s: s.reduce("SUM", None, axis=None), TypeError, "None is no array"),
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


def test_the_mean_of_integers() -> None:
    with usable_after() as (strategy, _, _):
        with strategy.scope():
            count = Variable(0, aggregation=VariableAggregation.MEAN)
        with refused(ValueError, "the MEAN of integers is float64"):
            strategy.run(lambda: count.assign(4))
        count.assign(4)
        assert int(count) == 4


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
