"""Functions on workers that a program makes in odd ways: each call runs the one that was meant."""

import dataclasses
import threading
import time
import uuid
import weakref

import numpy as np
import pytest

from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import Variable
from mpistrat.coordinator import ClusterCoordinator, experimental_get_current_worker_index
from mpistrat.errors import CoordinatorError
from mpistrat.ps.messages import Drop
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy


class WordError(Exception):
    """Comes back as a word."""

    def __reduce__(self):
        return str, ("word",)


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """Takes no cause."""


ARRIVED = weakref.WeakSet()


class Held:
    """What a function captures; ARRIVED has those on workers."""

    def __getstate__(self):
        return ("held",)

    def __setstate__(self, state):
        ARRIVED.add(self)


class Arrived:
    """Gets a name of its own each time that it arrives somewhere."""

    def __getstate__(self):
        return ("sent",)

    def __setstate__(self, state):
        self.name = uuid.uuid4().hex


@on_jobs
def test_a_function_is_shipped_once_to_each_worker(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        held = Arrived()

        def worker_fn(number):
            time.sleep(0.001)  # so that both workers get some
            return experimental_get_current_worker_index(), held.name, number

        values = []
        for number in range(40):
            values.append(coordinator.schedule(worker_fn, args=(number,)))
            if number % 10 == 9:
                coordinator.join()
        found = coordinator.fetch(values)
        assert [number for *_, number in found] == list(range(40))
        names = {(worker, name) for worker, name, _ in found}
        assert len(names) == len({worker for worker, _ in names}) <= 2


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


@on_jobs
@pytest.mark.parametrize("error", [WordError, FrozenError])
def test_errors_that_come_back_as_none_are_told_in_words(layout, error):
    @on_chief(layout)
    def _(strategy, coordinator):
        def fail():
            raise error

        with pytest.raises(CoordinatorError, match=error.__name__):
            coordinator.schedule(fail).fetch()
        with pytest.raises(CoordinatorError, match=error.__name__):
            coordinator.join()
        assert coordinator.schedule(abs, args=(-1,)).fetch() == 1


@on_jobs
def test_changes_of_a_function_that_failed_are_made_before_it_counts_as_finished(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros(100_000))

        def change_and_fail():
            v.assign_add(np.ones(100_000))
            raise ValueError("after a change")

        for number in range(1, 20):
            coordinator.schedule(change_and_fail)
            with pytest.raises(ValueError, match="after a change"):
                coordinator.join()
            assert v.numpy().min() == number


def test_what_went_wrong_with_a_change_is_not_the_next_functions_error():
    @on_chief(Cast(1, 1, 1))
    def _(strategy, coordinator):
        with strategy.scope():
            gone = Variable(np.zeros(3))

        def change_and_fail():
            gone.assign_add(np.ones(3))
            raise ValueError("its own")

        strategy.extended.client.tell(0, Drop(gone.spec.key))
        coordinator.schedule(change_and_fail)
        with pytest.raises(ValueError, match="its own"):
            coordinator.join()
        assert coordinator.schedule(abs, args=(-1,)).fetch() == 1


def test_who_waits_is_told_when_the_coordinators_thread_ends(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    strategy = ParameterServerStrategy(Cast(1, 1, 1).resolver())
    coordinator = ClusterCoordinator(strategy)
    value = coordinator.schedule(time.sleep, args=(0.2,))
    strategy.embedded.workers[0].streams[strategy.embedded.chief.me].post("nonsense")
    with pytest.raises(CoordinatorError, match="cannot go on: ValueError"):
        value.fetch()
    strategy.abandon("of a test")
