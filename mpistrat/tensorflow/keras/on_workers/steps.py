"""Send Keras's train, test and predict steps to workers as functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from mpistrat.tensorflow.keras.on_workers.batches import Batches, of_worker
from mpistrat.tensorflow.private import api as private_api

__all__ = ["Prediction", "Predictions", "Steps"]

_AHEAD = 4  # functions for each worker that may be under way


class _Running:
    """Scheduled functions that have not ended, in the order in which they were sent."""

    def __init__(self, coordinator: Any) -> None:
        self.coordinator = coordinator
        self._waiting: deque[Any] = deque()
        self._most = _AHEAD * coordinator.strategy.tasks.num_workers

    def add(self, remote: Any) -> None:
        """Add a function's result to come."""
        self._waiting.append(remote)

    def ended(self, is_any_wanted: bool) -> list[Any]:
        """Return results that have arrived; wait for one if it is wanted, or if too many run."""
        found: list[Any] = []
        # In order, though later ones may have ended: logs are those of the last step.
        while self._waiting:
            is_wanted = is_any_wanted and not found
            may_run = len(self._waiting) <= self._most and not is_wanted
            if may_run and not private_api.is_available(self._waiting[0], 0.0):
                break
            found.append(self._fetched(self._waiting.popleft()))
        return found

    def _fetched(self, remote: Any) -> Any:
        try:
            return self.coordinator.fetch(remote)
        except tf.errors.OpError:
            self.coordinator.join()  # raises what came first, which may have cancelled this one
            raise

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()


class Steps:
    """Keras's train or test function: a call sends the next steps, and returns the newest logs.

    Parameters
    ----------
    coordinator
        Sends functions to the workers.
    step
        What to do with a batch, in a function that is traced; returns logs.
    count
        Returns the number of steps of a call.

    Attributes
    ----------
    data
        The `WorkerData` of the last call.
    """

    def __init__(
        self, coordinator: Any, step: Callable[[Any], Any], count: Callable[[], int]
    ) -> None:
        self._coordinator, self._count = coordinator, count
        self._from_chief = tf.function(step, reduce_retracing=True, autograph=False)
        self._from_worker = tf.function(of_worker(step), autograph=False)
        self._running = _Running(coordinator)
        self._logs: Any = None
        self._told: Any = None
        self.data: Any = None

    def __call__(self, batches: Iterable[Any]) -> Any:
        """Send steps; return logs.

        Returns
        -------
        dict
            Of the last step of the epoch that has ended so far; metrics are those of all steps
            until then. At the end of an epoch, those returned last become those of its last step.
            For batches of the caller's own: of their last step.

        Raises
        ------
        StopIteration
            There is no more data; all steps have ended.
        """
        if not isinstance(batches, Batches):
            return self._now(batches)
        self._begin(batches)
        for done in range(self._count()):
            remote = batches.schedule(self._from_worker, self._from_chief)
            if remote is None and not done:
                batches.data.settle()
                raise StopIteration
            if remote is None:
                break
            self._running.add(remote)
        # The newest: of a step that has ended since the last call, or else those of before.
        self._logs = [self._logs, *self._running.ended(is_any_wanted=self._logs is None)][-1]
        # A copy, which `finish` completes in place: Keras has it until the end of the epoch.
        self._told = dict(self._logs) if isinstance(self._logs, dict) else self._logs
        return self._told

    def _begin(self, batches: Batches) -> None:
        """Wait for steps of other data, if the last epoch ended by an error."""
        if batches.data is not self.data:
            self._running.clear()
            self._coordinator.join()
            self.data, self._logs = batches.data, None
            batches.data.follow(self.finish)

    def finish(self) -> None:
        """Complete the logs that were returned last: all steps have ended."""
        # All have ended (`WorkerData.settle`), so this waits for none.
        ended = self._running.ended(is_any_wanted=False)
        if ended and isinstance(self._told, dict):
            self._told.update(ended[-1])
        self._logs = None

    def _now(self, batches: Iterable[Any]) -> Any:
        remotes = [
            self._coordinator.schedule(self._from_chief, (batch,))
            for batch in islice(batches, self._count())
        ]
        self._coordinator.join()
        return self._coordinator.fetch(remotes[-1])


class Prediction:
    """Predictions of workers for some batches, fetched when read; a leaf of Keras's nests.

    Parameters
    ----------
    coordinator
        Sent them.
    remotes
        The results to come, by batch.
    """

    def __init__(self, coordinator: Any, remotes: list[Any]) -> None:
        self._coordinator, self.remotes = coordinator, remotes

    def parts(self) -> list[Any]:
        """Return the tensors that were predicted, by batch."""
        for one in self.remotes:
            # It ends with an error if a worker is lost; `get` alone would wait for good.
            self._coordinator.wait_for(one)
        return [one.get() for one in self.remotes]

    def numpy(self) -> Any:
        """Return the rows of all batches as arrays, in the model's nest of outputs."""
        return tf.nest.map_structure(lambda *rows: np.concatenate(rows), *self._arrays())

    def _arrays(self) -> list[Any]:
        return [tf.nest.map_structure(lambda one: one.numpy(), part) for part in self.parts()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the rows of a model with one output."""
        del copy
        return np.asarray(self.numpy(), dtype)


class Predictions:
    """Keras's predict function: a call sends some batches, and waits only if too many run.

    Parameters
    ----------
    coordinator
        Sends functions to the workers.
    predict
        What to do with a batch, in a function that is traced.
    """

    def __init__(self, coordinator: Any, predict: Callable[[Any], Any]) -> None:
        self._coordinator = coordinator
        self._predict = tf.function(predict, reduce_retracing=True, autograph=False)
        self._running = _Running(coordinator)

    def __call__(self, batches: list[Any]) -> Prediction:
        """Send a list of batches; return their predictions to come."""
        remotes = [self._coordinator.schedule(self._predict, (batch,)) for batch in batches]
        for one in remotes:
            self._running.add(one)
        self._running.ended(is_any_wanted=False)
        return Prediction(self._coordinator, remotes)
