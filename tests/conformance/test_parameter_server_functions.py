"""Functions on workers that a program makes in odd ways: each call runs the one that was meant."""

import time
import weakref

import pytest

from mpistrat.testing.coordination import JOBS, Cast, on_chief


ARRIVED = weakref.WeakSet()


class Held:
    """What a function captures; ARRIVED has those on workers."""

    def __getstate__(self):
        return ("held",)

    def __setstate__(self, state):
        ARRIVED.add(self)


on_jobs = pytest.mark.parametrize("layout", JOBS, ids=str)


@on_jobs
def test_methods_of_one_name_are_different_functions(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        def decorated(method):
            def wrapper(self):
                return method(self)

            return wrapper

        class Steps:
            @decorated
            def first(self):
                return 1

            @decorated
            def second(self):
                return 2

        steps = Steps()
        calls = [steps.first, steps.second, steps.first]
        assert coordinator.fetch([coordinator.schedule(one) for one in calls]) == [1, 2, 1]


@on_jobs
def test_a_function_that_waits_outlives_more_new_ones_than_workers_keep(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        def slow():
            time.sleep(0.003)
            return 5

        coordinator.fetch([coordinator.schedule(slow) for _ in range(4)])
        coordinator.join()
        values = [coordinator.schedule(slow) for _ in range(60)]
        for _ in range(1100):
            coordinator.schedule(lambda: 0)
        coordinator.join()
        assert coordinator.fetch(values) == [5] * 60


def test_workers_drop_functions_that_were_forgotten_before_they_came():
    @on_chief(Cast(1, 1, 1))
    def _(strategy, coordinator):
        coordinator.schedule(time.sleep, args=(0.2,))
        for _ in range(3000):
            held = Held()
            coordinator.schedule(lambda held=held: None)
        coordinator.join()
        for _ in range(2):
            coordinator.schedule(abs, args=(-1,)).fetch()
        assert len(ARRIVED) < 1100


@on_jobs
def test_an_iterator_can_be_made_of_a_dataset_that_nobody_keeps_while_workers_are_busy(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        for _ in range(4):
            coordinator.schedule(time.sleep, args=(0.1,))
        iterator = iter(coordinator.create_per_worker_dataset(lambda: [7, 8]))
        assert coordinator.schedule(next, args=(iterator,)).fetch() == 7
        coordinator.join()
        for _ in range(4):
            coordinator.schedule(time.sleep, args=(0.1,))
        iter(coordinator.create_per_worker_dataset(lambda: [7, 8]))
        coordinator.join()
