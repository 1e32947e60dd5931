"""Sums that only the library reads are once a node, and are what private ones would be."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest

import mpistrat
from mpistrat import CentralStorageStrategy, MirroredStrategy
from mpistrat.collectives import Communicator
from mpistrat.errors import MismatchError
from mpistrat.optimizers import SGD, Optimizer
from mpistrat.strategy.reduction.shared_sums import SharedSums
from mpistrat.tables.rule import Rule

pytestmark = pytest.mark.mpi(ranks=[1, 2, 3])

SHAPES = {  # 1.3 MB of two dtypes, in turn
    "float32": [(3, 1000), (), (200_001,), (0, 4)],
    "float64": [(5,), (60_000,)],
}


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def arrays_of(rank, step=0, shapes=SHAPES):
    longest = max(len(of_one) for of_one in shapes.values())
    return [
        np.full(of_one[place], 10 * step + rank + place, dtype)
        for place in range(longest)
        for dtype, of_one in shapes.items()
        if place < len(of_one)
    ]


def check(comm, sums, step, shapes=SHAPES):
    for index, one in enumerate(sums):
        expected = sum(arrays_of(rank, step, shapes)[index] for rank in range(comm.size))
        assert one.dtype == expected.dtype
        np.testing.assert_array_equal(one, expected)


def are_shared(comm, sums):
    """Tell whether what rank 0 writes is seen by the last one. **Collective.**"""
    comm.barrier()
    if comm.rank == 0:
        sums[0][0] = -7
    comm.barrier()
    return comm.allgather_object(float(sums[0].flat[0]))[-1] == -7


@pytest.mark.parametrize("backend", ["shm", "mpi"])
def test_memory_is_shared_from_the_second_equal_list_on(backend):
    with Communicator(world(), backend) as comm:
        sums = SharedSums(comm)
        for step in range(4):
            totals = sums.sum(arrays_of(comm.rank, step))
            check(comm, totals, step)
            can_share = backend == "shm" or comm.size == 1
            assert are_shared(comm, totals) is (comm.size == 1 or (step > 0 and can_share))


@pytest.mark.mpi(ranks=[2, 3])
def test_lists_of_other_shapes_and_short_ones_stay_private():
    short = {"float32": [(1000,)], "int64": [(3, 4)]}
    with Communicator(world(), "shm") as comm:
        sums = SharedSums(comm)
        for step, shapes in enumerate([SHAPES, short, SHAPES, short, short, short]):
            totals = sums.sum(arrays_of(comm.rank, step, shapes))
            check(comm, totals, step, shapes)
            assert are_shared(comm, totals) is (step == 2)


@pytest.mark.mpi(ranks=[2])
def test_lists_that_take_turns_are_shared_and_those_of_long_ago_given_back():
    others = [{"float32": [(300_000 + more,)], "float64": [(1,)]} for more in range(4)]
    with Communicator(world(), "shm") as comm:
        sums = SharedSums(comm)
        turns = [SHAPES, others[0], SHAPES, others[0], *others[1:], SHAPES]
        found = []
        for step, shapes in enumerate(turns):
            totals = sums.sum(arrays_of(comm.rank, step, shapes))
            check(comm, totals, step, shapes)
            found.append(are_shared(comm, totals))
        assert found == [False, False, True, True, False, False, False, False]


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_ranks_with_other_shapes_are_told_and_go_on(steps):
    with Communicator(world(), "shm") as comm:
        sums = SharedSums(comm)
        for step in range(steps):
            sums.sum(arrays_of(comm.rank, step))
        mine = arrays_of(comm.rank)[: -1 if comm.rank == 0 else None]
        with pytest.raises(MismatchError):
            sums.sum(mine)
        for step in range(5, 8):
            check(comm, sums.sum(arrays_of(comm.rank, step)), step)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kind", [MirroredStrategy, CentralStorageStrategy])
def test_an_optimizer_steps_by_them(kind, devices):
    with kind([f"CPU:{i}" for i in range(devices)]) as strategy:
        with strategy.scope():
            variables = [mpistrat.Variable(np.zeros(n, np.float32)) for n in (300_000, 7)]
        optimizer = SGD(0.5)

        def step():
            mine = 1.0 + mpistrat.get_replica_context().replica_id_in_sync_group
            grads = [np.full(one.shape, mine, np.float32) for one in variables]
            optimizer.apply_gradients(zip(grads, variables, strict=True))

        for number in range(1, 6):
            strategy.run(step)
            count = strategy.num_replicas_in_sync
            expected = -0.5 * number * count * (count + 1) / 2
            assert {float(one.numpy()[-1]) for one in variables} == {expected}


def sgd_steps(optimizers, steps):
    """Return the last weight of each step by `optimizers[step]`, whose gradients are ones."""
    seen = []
    with MirroredStrategy(["CPU:0"]) as strategy:
        with strategy.scope():
            variables = [mpistrat.Variable(np.zeros(n, np.float32)) for n in (300_000, 7)]

        def step(optimizer):
            grads = [np.ones(one.shape, np.float32) for one in variables]
            optimizer.apply_gradients(zip(grads, variables, strict=True))

        optimizer = None
        for number in range(steps):
            optimizer = optimizers(number, optimizer)
            strategy.run(step, args=(optimizer,))
            seen.append(float(variables[0].numpy()[-1]) / strategy.num_replicas_in_sync)
    return seen


@pytest.mark.mpi(ranks=[2])
def test_a_rank_may_go_on_with_a_copy_of_its_optimizer():
    def chosen(number, last):
        if number == 3 and world().rank == 0:
            return copy.deepcopy(last)
        return last or SGD(0.5)

    assert sgd_steps(chosen, 6) == [-0.5, -1.0, -1.5, -2.0, -2.5, -3.0]


@dataclass(frozen=True)
class InPlaceRule(Rule):
    """A user's, who writes to what the gradient is in."""

    def change(self, slots, gradient, step, learning_rate):
        """Return the gradient's own memory."""
        gradient *= -learning_rate
        return gradient


@pytest.mark.mpi(ranks=[2])
def test_a_rule_of_a_user_has_sums_of_its_own():
    def chosen(number, last):
        return last or Optimizer(InPlaceRule(), 0.5)

    assert sgd_steps(chosen, 4) == [-0.5, -1.0, -1.5, -2.0]
