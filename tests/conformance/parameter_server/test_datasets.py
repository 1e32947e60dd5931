"""Data sets and other values that each worker has for itself."""

import time

import numpy as np
import pytest

from helpers.coordinator.coordination import on_chief, on_jobs
from mpistrat.coordinator import (
    PerWorkerValues,
    RemoteValue,
    experimental_get_current_worker_index,
)
from mpistrat.data import Dataset
from mpistrat.errors import ContextError, CoordinatorError, UsageError


def raise_value_error():
    raise ValueError("said by a function")


@on_jobs
def test_b85_each_worker_has_a_dataset_and_iter_starts_it_again(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        def dataset_fn():
            first = 100 * experimental_get_current_worker_index()
            return Dataset.range(first, first + 1000).batch(2)

        dataset = coordinator.create_per_worker_dataset(dataset_fn)

        def work(iterator):
            return np.asarray(next(iterator)).tolist()

        for _ in range(2):
            iterator = iter(dataset)
            found = coordinator.fetch(
                [coordinator.schedule(work, args=(iterator,)) for _ in "abc"]
            )
            firsts = sorted(batch[0] for batch in found)
            expected = {0: [0, 2, 4], 1: [0, 2, 100], 2: [0, 100, 102], 3: [100, 102, 104]}
            assert firsts == expected[sum(one >= 100 for one in firsts)]
            with pytest.raises(ContextError, match="on the chief"):
                next(iterator)


@on_jobs
def test_an_iterators_end_is_an_error_of_the_function(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        iterator = iter(coordinator.create_per_worker_dataset([1, 2]))

        def take_all(iterator):
            return [next(iterator) for _ in range(3)]

        coordinator.schedule(take_all, args=(iterator,))
        with pytest.raises(StopIteration, match="no more elements; repeat"):
            coordinator.join()


@on_jobs
def test_results_that_an_iterators_end_left_out_do_not_end_a_map(layout):
    """`map` takes a StopIteration of `fetch` for its own end, and gives fewer results."""

    @on_chief(layout)
    def _(strategy, coordinator):
        iterator = iter(coordinator.create_per_worker_dataset([1]))
        work = coordinator.schedule(lambda: [next(iterator), next(iterator)])
        for fetch in (coordinator.fetch, RemoteValue.fetch, RemoteValue.get):
            with pytest.raises(CoordinatorError, match=r"StopIteration: .*no more elements"):
                list(map(fetch, [work]))
        with pytest.raises(StopIteration):
            coordinator.join()


@on_jobs
def test_an_iterators_end_does_not_end_a_map_over_schedule(layout):
    """Which would schedule fewer calls than there are arguments, without a word."""

    @on_chief(layout)
    def _(strategy, coordinator):
        iterator = iter(coordinator.create_per_worker_dataset([1]))

        def schedule(number):
            work = coordinator.schedule(lambda: [next(iterator), next(iterator)])
            while not work.is_done:
                time.sleep(1e-3)
            return number

        with pytest.raises(CoordinatorError, match=r"StopIteration: .*no more elements"):
            list(map(schedule, range(3)))
        coordinator.join()


@on_jobs
def test_an_error_of_a_dataset_function_is_one_of_the_job(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        coordinator.create_per_worker_dataset(raise_value_error)
        with pytest.raises(ValueError, match="said by a function"):
            coordinator.join()


@on_jobs
def test_what_failed_to_be_made_is_told_again_where_it_is_used(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        iterator = iter(coordinator.create_per_worker_dataset(raise_value_error))
        with pytest.raises(ValueError, match="said by a function"):
            coordinator.join()
        work = coordinator.schedule(next, args=(iterator,))
        with pytest.raises((UsageError, CoordinatorError)) as caught:  # cancelled, or run
            coordinator.fetch(work)
        if isinstance(caught.value, CoordinatorError):
            assert "PerWorkerIterator, which was scheduled before" in str(caught.value)
        with pytest.raises(UsageError) as caught:
            coordinator.fetch(coordinator.schedule(next, args=(iterator,)))
        assert "missing on this worker (ValueError: said by a function); make" in str(caught.value)


@on_jobs
def test_per_worker_values(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        values = PerWorkerValues([["zero"], ["one"]])
        assert values.values == (["zero"], ["one"])

        def work(pair, plain):
            return experimental_get_current_worker_index(), pair["x"], plain

        found = coordinator.schedule(work, args=({"x": values}, 5)).fetch()
        assert found in [(0, ["zero"], 5), (1, ["one"], 5)]
        with pytest.raises(UsageError, match="one for each of the 2 workers"):
            coordinator.schedule(work, args=({"x": PerWorkerValues([1])}, 5))
        with pytest.raises(UsageError, match="expected a list"):
            PerWorkerValues(3)
