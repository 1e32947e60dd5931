"""Functions take what they capture along: the coordinator travels; errors name what cannot."""

import copy
import functools
import threading

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import Variable
from mpistrat.coordinator import ClusterCoordinator
from mpistrat.data import Dataset
from mpistrat.errors import ArgumentTypeError, ContextError

LOCK = threading.Lock()


class Trainer:
    """As programs have it: one object with the strategy, its coordinator, and all else."""

    def __init__(self, strategy, coordinator, **more):
        self.strategy, self.coordinator = strategy, coordinator
        with strategy.scope():
            self.total = Variable(0.0)
        vars(self).update(more)

    def step(self, by):
        self.total.assign_add(by)
        return self.coordinator.strategy is self.strategy is mpistrat.get_strategy()


@on_jobs
def test_a_method_of_an_object_that_has_the_coordinator(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        trainer = Trainer(strategy, coordinator)
        work = [coordinator.schedule(trainer.step, args=(1.0,)) for _ in range(4)]
        assert coordinator.fetch(work) == [True] * 4
        coordinator.join()
        assert float(trainer.total) == 4
        assert coordinator.schedule(lambda: trainer.coordinator).fetch() is coordinator
        assert copy.deepcopy(coordinator) is coordinator


@on_jobs
@pytest.mark.parametrize("name", ["schedule", "join", "fetch", "create_per_worker_dataset"])
def test_on_a_worker_the_coordinator_refuses_calls(layout, name):
    @on_chief(layout)
    def _(strategy, coordinator):
        coordinator.schedule(lambda: getattr(coordinator, name)(abs))
        with pytest.raises(ContextError, match=rf"{name} in a function on worker \d.*the chief"):
            coordinator.join()
        coordinator.schedule(lambda: ClusterCoordinator(strategy))
        with pytest.raises(ContextError, match="make it on the chief"):
            coordinator.join()


def test_an_error_names_what_cannot_travel():
    @on_chief(Cast(1, 1, 1))
    def _(strategy, coordinator):
        data = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))
        held = Trainer(strategy, coordinator, held={"locks": [1, LOCK]}).step
        reads = Trainer(strategy, coordinator, data=data).step
        inner = held.__self__
        cases = {
            r"self\.held\['locks'\]\[1\], of type lock": lambda: coordinator.schedule(held),
            r"self\.data, of type DistributedDataset": lambda: coordinator.schedule(reads),
            r"inner\.held.*of type lock": lambda: coordinator.schedule(lambda: inner),
            r"because of LOCK, of type lock": lambda: coordinator.schedule(lambda: LOCK),
            r"because of args\[1\], of type lock": lambda: coordinator.schedule(abs, (1, LOCK)),
            r"kwargs\['x'\], of": lambda: coordinator.schedule(abs, kwargs={"x": LOCK}),
            r"because of keywords\['x'\]": lambda: coordinator.schedule(
                functools.partial(abs, x=LOCK)
            ),
        }
        for match, call in cases.items():
            with pytest.raises(ArgumentTypeError, match=match):
                call()
        coordinator.schedule(lambda: [np.ones(1), threading.Lock()])
        with pytest.raises(ArgumentTypeError, match=r"because of its \[1\], of type lock"):
            coordinator.join()


def test_a_dataset_that_the_chief_has_distributed_is_no_workers():
    @on_chief(Cast(1, 1, 1))
    def _(strategy, coordinator):
        data = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))
        with pytest.raises(ArgumentTypeError, match=r"lambda: strategy\.experimental_dist"):
            coordinator.create_per_worker_dataset(data)
