"""Functions that a coordinator sends to its workers: when they run, and what they see."""

import threading
import time

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import IndexedSlices, Variable
from mpistrat.coordinator import (
    ClusterCoordinator,
    RemoteValue,
    experimental_get_current_worker_index,
)
from mpistrat.errors import ArgumentTypeError, ContextError, UsageError


@on_jobs
def test_b84_schedule_returns_at_once_and_join_waits(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            go = Variable(0)

        def wait():
            while int(go) == 0:
                time.sleep(0.001)
            return experimental_get_current_worker_index()

        values = [coordinator.schedule(wait) for _ in range(2)]
        assert not coordinator.done()
        assert all(isinstance(value, RemoteValue) for value in values)
        go.assign(1)
        coordinator.join()
        assert coordinator.done()
        assert sorted(coordinator.fetch(values)) == [0, 1]


@on_jobs
def test_fetch_takes_nests(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        value = coordinator.schedule(lambda x: x * 2, args=(np.arange(3),))
        nest = {"a": [value, 1], "b": (value, "text")}
        found = coordinator.fetch(nest)
        assert found["a"][0].tolist() == [0, 2, 4]
        assert found["a"][1] == 1
        assert found["b"][1] == "text"
        assert value.get() is value.fetch()


@on_jobs
def test_many_functions_run_once_each(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        values = [coordinator.schedule(lambda x=i: x, args=()) for i in range(50)]
        values += [coordinator.schedule(abs, args=(-i,)) for i in range(2000)]
        coordinator.join()
        assert coordinator.fetch(values) == [*range(50), *range(2000)]


@on_jobs
def test_there_is_one_coordinator_for_a_strategy(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        assert ClusterCoordinator(strategy) is coordinator
        assert coordinator.strategy is strategy
        with pytest.raises(ArgumentTypeError, match="expected a ParameterServerStrategy"):
            ClusterCoordinator(mpistrat.OneDeviceStrategy("CPU:0"))


@on_jobs
def test_what_a_function_captures_is_frozen_at_its_first_schedule(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        kept = [1]

        class Adder:
            def __init__(self):
                self.number = 10

            def add(self, x):
                return self.number + x

        adder = Adder()
        before = coordinator.fetch(
            [coordinator.schedule(lambda: kept), coordinator.schedule(adder.add, args=(1,))]
        )
        fn = lambda: list(kept)  # noqa: E731
        assert coordinator.schedule(fn).fetch() == [1]
        kept.append(2)
        adder.number = 20
        assert coordinator.schedule(fn).fetch() == [1]
        assert coordinator.schedule(adder.add, args=(1,)).fetch() == before[1] == 11


@on_jobs
def test_results_may_be_of_the_programs_own_classes(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        class Pair:
            def __init__(self, left, right):
                self.left, self.right = left, right

        def swap(pair):
            return Pair(pair.right, pair.left)

        found = coordinator.schedule(swap, args=(Pair(1, 2),)).fetch()
        assert isinstance(found, Pair)
        assert (found.left, found.right) == (2, 1)


@on_jobs
def test_a_worker_is_one_replica_of_its_own(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        assert strategy.num_replicas_in_sync == 1

        def work():
            def replica_fn(x):
                replica = mpistrat.get_replica_context()
                return replica.replica_id_in_sync_group, replica.num_replicas_in_sync, x

            is_current = mpistrat.get_strategy() is strategy
            result = strategy.run(replica_fn, args=(5,))
            return is_current, result, float(strategy.reduce("SUM", 2.0, axis=None))

        assert coordinator.schedule(work).fetch() == (True, (0, 1, 5), 2.0)


def test_the_worker_index_is_for_workers_only():
    with pytest.raises(ContextError, match="outside of a function"):
        experimental_get_current_worker_index()


@on_jobs
@pytest.mark.parametrize("wrong", [3, None, "text"])
def test_only_functions_can_be_scheduled(layout, wrong):
    @on_chief(layout)
    def _(strategy, coordinator):
        with pytest.raises(TypeError, match="expected a function"):
            coordinator.schedule(wrong)
        with pytest.raises(TypeError, match="list or tuple"):
            coordinator.schedule(abs, args=1)
        with pytest.raises(TypeError, match="kwargs is a list; expected a dict"):
            coordinator.schedule(abs, kwargs=["x"])
        with pytest.raises(TypeError, match="cannot be sent"):
            coordinator.schedule(print, args=(threading.Lock(),))
        assert coordinator.done()


@on_jobs
@pytest.mark.parametrize("bound", [0, 1, 3])
def test_with_bounded_staleness_a_function_sees_what_those_before_it_changed(layout, bound):
    @on_chief(layout, max_staleness=bound)
    def _(strategy, coordinator):
        with strategy.scope():
            done = Variable(np.zeros(60))
        assert coordinator.max_staleness == bound

        def work(number):
            seen = done.numpy()
            time.sleep(0.003 if number % 3 == 0 else 0.0)
            done.scatter_add(IndexedSlices([1.0], [number]))
            return seen

        values = [coordinator.schedule(work, args=(number,)) for number in range(60)]
        for number, seen in enumerate(coordinator.fetch(values)):
            assert seen[: max(0, number - bound)].all(), (number, seen)
            assert not seen[number + bound + 1 :].any(), (number, seen)
        assert ClusterCoordinator(strategy) is coordinator
        with pytest.raises(UsageError, match="expected the same"):
            ClusterCoordinator(strategy, max_staleness=bound + 1)


@pytest.mark.parametrize("wrong", [-1, 0.5, True, "1"])
def test_a_bound_of_staleness_is_a_number(wrong):
    @on_chief(Cast(1, 1, 1))
    def _(strategy, coordinator):
        with pytest.raises(UsageError, match="max_staleness"):
            ClusterCoordinator(strategy, max_staleness=wrong)
