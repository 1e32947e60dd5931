"""The demo's training loop, in the style of a tf.distribute program."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mpistrat
from mpistrat.demo.digits import CLASSES, Digits, Examples
from mpistrat.demo.network import Network
from mpistrat.demo.timed_all_reduce import TimedAllReduce
from mpistrat.optimizers import SGD
from mpistrat.types import Array, Nest

__all__ = ["Epoch", "Options", "Trainer"]

_HIDDEN_UNITS = 128
_MOMENTUM = 0.9


@dataclass(frozen=True)
class Options:
    """The options of a run; the batch size is that of the global batch, over all replicas."""

    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class Epoch:
    """The results of one pass over the training images.

    Attributes
    ----------
    number
        From 1.
    loss
        Mean over all training images, each as it was learnt from.
    accuracy
        Share of the test images that the network reads rightly after this epoch.
    samples
        Images learnt from.
    duration_s
        Time to learn from them; the test is not in it.
    communication_s
        What of that this rank spent in all-reduces, as `TimedAllReduce` counts.
    """

    number: int
    loss: float
    accuracy: float
    samples: int
    duration_s: float
    communication_s: float


class Trainer:
    """A network, its optimizer and its data on a strategy.

    Parameters
    ----------
    strategy
        Whose replicas share the work. **Collective** over its ranks, as are all methods.
    digits
        The same on all ranks.
    options
        The same on all ranks.
    timer
        The clock in the strategy's `cross_device_ops`, if there is one.
    """

    def __init__(
        self,
        strategy: mpistrat.Strategy,
        digits: Digits,
        options: Options,
        timer: TimedAllReduce | None = None,
    ) -> None:
        self._strategy, self._options = strategy, options
        self._timer = timer or TimedAllReduce()
        with strategy.scope():
            self._network = Network(
                (digits.train.images.shape[1], _HIDDEN_UNITS, CLASSES), options.seed
            )
            self._optimizer = SGD(options.learning_rate, momentum=_MOMENTUM)
            self._optimizer.build(self._network.variables)
        train = _dataset(digits.train).shuffle(len(digits.train), seed=options.seed)
        test = _dataset(digits.test)
        distribute = strategy.experimental_distribute_dataset
        self._train = distribute(train.batch(options.batch_size))
        self._test = distribute(test.batch(len(digits.test)))
        self._samples = len(digits.train)

    @property
    def variables(self) -> list[mpistrat.Variable]:
        """Everything that must be the same on all replicas."""
        return [*self._network.variables, *self._optimizer.variables]

    @property
    def steps(self) -> int:
        """Number of steps in an epoch."""
        return len(self._train)

    def run_epoch(self, number: int, on_step: Callable[[], None] = lambda: None) -> Epoch:
        """Learn from every training image once, then test; `on_step` is called at each step."""
        decay = 1 - (number - 1) / self._options.epochs
        self._optimizer.learning_rate = self._options.learning_rate * decay
        total: Any = 0.0
        waited, start = self._timer.seconds, time.perf_counter()
        for batch in self._train:
            losses = self._strategy.run(self._train_step, args=(batch,))
            # Replicas have unequal shares of a batch: sum and count, never a mean of means. The
            # total stays on the GPU, so that no step waits for the host.
            total += self._strategy.reduce("SUM", losses, axis=0)
            on_step()
        loss = float(total) / self._samples
        duration_s = time.perf_counter() - start
        communication_s = self._timer.seconds - waited
        return Epoch(
            number=number,
            loss=loss,
            accuracy=self.accuracy(),
            samples=self._samples,
            duration_s=duration_s,
            communication_s=communication_s,
        )

    def accuracy(self) -> float:
        """Return the share of the test images that the network reads rightly."""
        batch = next(iter(self._test))  # all test images; replicas have unequal shares
        hits = self._strategy.run(self._test_step, args=(batch,))
        # With an axis, MEAN divides by the number of images, not by that of replicas.
        return float(self._strategy.reduce("MEAN", hits, axis=0))

    def _train_step(self, batch: Nest) -> Array:
        """Learn from this replica's share of a batch; return the losses of its images."""
        images, labels = batch
        losses, gradients = self._network.losses_and_gradients(images, labels)
        rows = np.array(float(len(labels)), like=losses)  # on the GPU where the losses are
        # One message: a list of arrays of one dtype is packed. The true size of the global
        # batch, which may be short at the end of an epoch, travels with the gradients.
        replica: Any = mpistrat.get_replica_context()
        batch_rows, *gradients = replica.all_reduce("SUM", [rows, *gradients])
        means = [gradient / batch_rows for gradient in gradients]
        self._optimizer.apply_gradients(
            zip(means, self._network.variables, strict=True), skip_gradients_aggregation=True
        )
        return losses

    def _test_step(self, batch: Nest) -> Array:
        """Return 1 for each image of this replica's share that is read rightly, else 0."""
        images, labels = batch
        hits: Array = np.equal(self._network.logits(images).argmax(axis=1), labels).astype(float)
        return hits


def _dataset(examples: Examples) -> mpistrat.data.Dataset:
    return mpistrat.data.Dataset.from_tensor_slices((examples.images, examples.labels))
