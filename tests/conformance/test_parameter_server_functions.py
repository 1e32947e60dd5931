"""Functions on workers that a program makes in odd ways: each call runs the one that was meant."""

import time

import pytest

from mpistrat.testing.coordination import JOBS, Cast, on_chief

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
            coordinator.schedule(lambda: 0)
        coordinator.join()
        for _ in range(2):
            coordinator.schedule(abs, args=(-1,)).fetch()
        queue = coordinator._dispatcher.workers[0]
        assert len(queue.known) <= 1025
