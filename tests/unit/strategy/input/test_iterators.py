"""Iterators over distributed data: restart, errors, prefetching, and whose thread does what."""

import gc
import threading
import time

import numpy as np
import pytest

from helpers.strategy.input_ranks import DEADLINE_S, Ranks, local, steps
from mpistrat.data import Dataset
from mpistrat.strategy.input.distributed import (
    DistributedDataset,
    DistributedDatasetsFromFunction,
    DistributedIterator,
    InputIterator,
    InputWorkers,
)
from mpistrat.strategy.input.input_context import InputOptions
from mpistrat.strategy.values import regroup


def test_iterators_start_again():
    distributed = DistributedDataset(Dataset.range(4).batch(2), Ranks(1, 2).workers(0))
    iterator = iter(distributed)
    assert isinstance(iterator, DistributedIterator)
    assert local(iterator.get_next()) == [[0], [1]]
    assert steps(iterator) == [[[2], [3]]]
    with pytest.raises(StopIteration):
        iterator.get_next()
    assert len(steps(distributed)) == 2


def test_b69_e29_input_iterator():
    distributed = DistributedDataset(Dataset.range(5).batch(2), Ranks(1, 2).workers(0))
    iterator = InputIterator(distributed)
    assert local(iterator.get_next()) == [[0], [1]]  # without initialize: eager semantics
    assert iterator.initialize() == []
    assert steps(iterator) == [[[0], [1]], [[2], [3]], [[4], []]]
    with pytest.raises(StopIteration):
        iterator.get_next()
    assert iterator.initializer == []
    assert local(next(iterator)) == [[0], [1]]
    assert iterator.element_spec.values == distributed.element_spec.values


def test_errors_of_the_data_reach_the_caller_once():
    def generate():
        yield np.arange(2)
        raise OSError("disk gone")

    for buffer in (0, 1):
        options = InputOptions(experimental_per_replica_buffer_size=buffer)
        workers = Ranks(1, 2).workers(0)
        iterator = iter(DistributedDataset(Dataset.from_generator(generate), workers, options))
        assert local(next(iterator)) == [[0], [1]]
        with pytest.raises(OSError, match="disk gone"):
            next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)


@pytest.mark.parametrize(("replicas", "size", "ahead"), [(1, 1, 1), (2, 1, 2), (2, 3, 6)])
def test_b60_prefetches_as_many_steps_as_local_replicas(replicas, size, ahead):
    made = []

    def generate():
        for i in range(50):
            made.append(i)
            yield np.arange(replicas)

    options = InputOptions(experimental_per_replica_buffer_size=size)
    workers = Ranks(1, replicas).workers(0)
    iterator = iter(DistributedDataset(Dataset.from_generator(generate), workers, options))
    end = time.monotonic() + DEADLINE_S
    while len(made) < ahead + 1 and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(0.02)
    assert len(made) == ahead + 1
    next(iterator)


def test_dropped_iterators_leave_no_thread():
    distributed = DistributedDataset(Dataset.range(4).batch(2).repeat(), Ranks(1, 2).workers(0))
    for _ in range(3):
        for _step in distributed:
            break
    gc.collect()
    end = time.monotonic() + DEADLINE_S
    while any(t.name == "mpistrat-prefetch" for t in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.002)


def test_the_agreement_is_made_in_the_callers_thread():
    seen = set()
    workers = InputWorkers(
        4, 0, 2, 2, 0, regroup, lambda flag: seen.add(threading.current_thread()) or flag
    )
    steps(DistributedDatasetsFromFunction(lambda c: Dataset.range(8).batch(2), workers))
    assert seen == {threading.main_thread()}
