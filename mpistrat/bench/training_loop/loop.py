"""`TrainingLoop`: a program in the style of tf.distribute, with a clock in each step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import mpistrat
from mpistrat.bench.harness.node_memory import check_node_memory
from mpistrat.bench.training_loop.examples import make_examples
from mpistrat.bench.training_loop.perceptron import initial_values, loss_and_gradients
from mpistrat.bench.training_loop.reference import RATE
from mpistrat.bench.training_loop.task import Task
from mpistrat.demo.timed_all_reduce import TimedAllReduce
from mpistrat.optimizers import SGD
from mpistrat.types import Array, Nest

__all__ = ["Round", "TrainingLoop"]

_COPIES = 10  # weights, gradients and sums, initial values, and those of the reference in float64
_WARMUP = 2  # steps of a round without a clock: its thread for the input has just started


@dataclass(frozen=True)
class Round:
    """Some steps from the initial weights on.

    Attributes
    ----------
    losses
        The mean over each step's global batch, with those of the steps that were not timed.
    parts_us
        (steps, 3): what each timed step took this rank to get the input, to compute, and in the
        all-reduce.
    """

    losses: list[float]
    parts_us: Array


class TrainingLoop:
    """A perceptron, its optimizer and its data set on a strategy of all ranks.

    **Collective** to make, as are its methods.

    Raises
    ------
    UsageError
        A machine has not enough memory for the network of each of its ranks.
    """

    def __init__(self, task: Task) -> None:
        self._clock = TimedAllReduce()
        # On GPUs the network would be one of CuPy.
        self.strategy = mpistrat.MirroredStrategy(["CPU:0"], self._clock)
        advice = "pass fewer --units or --layers"
        nbytes = _COPIES * 4 * task.parameters
        what = f"{_COPIES} copies of {task.parameters} parameters"
        check_node_memory(what, nbytes, advice, self.strategy.communicator)
        self._initial = initial_values(task.sizes)
        with self.strategy.scope():
            self.variables = [mpistrat.Variable(value) for value in self._initial]
            self._optimizer = SGD(RATE)
            self._optimizer.build(self.variables)
        rows = mpistrat.data.Dataset.from_tensor_slices(make_examples())
        batches = rows.repeat().batch(task.global_batch)
        self._dataset = self.strategy.experimental_distribute_dataset(batches)

    def run(self, steps: int, warmup: int = _WARMUP) -> Round:
        """Train from the initial weights on for `warmup` steps and then `steps` timed ones."""
        for variable, value in zip(self.variables, self._initial, strict=True):
            variable.assign(value)
        self.strategy.communicator.barrier()
        batches = iter(self._dataset)
        taken = [self._step(batches) for _ in range(warmup + steps)]
        losses, parts = zip(*taken, strict=True)
        return Round(list(losses), np.array(parts[warmup:]) * 1e6)

    def _step(self, batches: Iterator[Nest]) -> tuple[float, tuple[float, float, float]]:
        before, start = self._clock.seconds, time.perf_counter()
        batch = next(batches)
        fetched = time.perf_counter()
        loss = self.strategy.run(self._train, args=(batch,))
        end = time.perf_counter()
        reducing = self._clock.seconds - before
        return float(loss), (fetched - start, end - fetched - reducing, reducing)

    def _train(self, batch: Nest) -> Array:
        """Learn from this rank's share of a global batch; return that batch's mean loss."""
        images, labels = batch
        values = [variable.value() for variable in self.variables]
        loss, gradients = loss_and_gradients(values, images, labels)
        numbers = np.array([loss, len(labels)], np.float32)  # in the gradients' message
        replica: Any = mpistrat.get_replica_context()
        (total, rows), *sums = replica.all_reduce("SUM", [numbers, *gradients])
        means = [one / rows for one in sums]
        self._optimizer.apply_gradients(
            zip(means, self.variables, strict=True), skip_gradients_aggregation=True
        )
        result: Array = total / rows
        return result
