"""Ranks that call unequal things: every rank gets the error, soon, and sees all calls."""

from typing import Any

import numpy as np
import pytest

from helpers.mistakes import abandon, refused, replica, usable_after
from mpistrat import MirroredStrategy, Variable, VariableSynchronization
from mpistrat.collectives import Communicator
from mpistrat.errors import MismatchError

pytestmark = pytest.mark.mpi(ranks=[2, 3])


def test_unequal_shapes() -> None:
    with usable_after() as (strategy, rank, size):
        words = "^Shape mismatch: the ranks called different collectives"
        with refused(MismatchError, words) as caught:
            strategy.reduce("SUM", np.ones(2 + rank), axis=None)
        assert sorted(caught.value.calls) == list(range(size))
        for other in range(size):
            assert f"shape=({2 + other},)" in caught.value.calls[other]
            assert "test_unequal_calls.py" in caught.value.calls[other]


def test_unequal_shapes_of_one_length() -> None:
    with usable_after() as (strategy, rank, _), refused(MismatchError, "shape"):
        strategy.reduce("SUM", np.ones((2, 3) if rank else (3, 2)), axis=None)


def test_one_array_of_a_long_list_is_named() -> None:
    with usable_after() as (strategy, rank, size):
        arrays = [np.ones(number % 7 + 1) for number in range(200)]
        if rank == size - 1:
            arrays[150] = np.ones((2, 2))
        with refused(MismatchError, "^Shape mismatch") as caught:
            strategy.communicator.allreduce_many(arrays)
        told = "200 arrays, first difference at arrays[150]: float64"
        assert f"{told} (4,), bucket_bytes" in str(caught.value)
        assert f"{told} (2, 2), bucket_bytes" in str(caught.value)


def test_what_all_ranks_failed_with_before_is_no_part_of_the_report() -> None:
    with usable_after() as (strategy, rank, _):
        with pytest.raises(ZeroDivisionError):
            strategy.run(lambda: 1 / 0)
        with refused(MismatchError, "shape") as caught:
            strategy.reduce("SUM", np.ones(2 + rank), axis=None)
        assert "after it failed" not in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None


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


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_a_broadcast_to_ranks_that_bring_nothing_is_told_by_what_it_needs() -> None:
    with Communicator() as comm:
        mine = np.ones(3) if comm.rank == 0 else None
        with pytest.raises((TypeError, MismatchError), match=r"bcast of None.*bcast_object"):
            comm.bcast(mine)
        assert comm.bcast(np.full(3, comm.rank), 1).tolist() == [1, 1, 1]
