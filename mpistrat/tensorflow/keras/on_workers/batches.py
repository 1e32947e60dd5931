"""Give each batch of a dataset to one step on one worker, whichever is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.data import shipped_datasets

__all__ = ["Batches", "WorkerData", "of_worker"]


class WorkerData:
    """A data set whose batches workers read; Keras iterates over it without seeing them.

    Every worker has the same data set, and takes of it the batches of the steps that it gets; the
    numbers of batches go with the steps. Where the length is not known, or the data only exists
    here, the chief reads, and sends the batches themselves.

    Parameters
    ----------
    coordinator
        Sends functions to the workers.
    dataset
        Of batches.
    length
        Their number; None for what the data set knows of it.

    Attributes
    ----------
    is_on_workers
        Whether the workers read.
    """

    def __init__(
        self, coordinator: Any, dataset: tf.data.Dataset, length: int | None = None
    ) -> None:
        self.coordinator, self.dataset = coordinator, dataset
        self.length = shipped_datasets.length(dataset) if length is None else length
        self._used = 0
        self._finish: Callable[[], None] | None = None
        is_countable = self.length is not None or shipped_datasets.is_endless(dataset)
        self._dataset_fn = shipped_datasets.sent(dataset) if is_countable else None
        self.is_on_workers = self._dataset_fn is not None
        self._iterators: Any = None

    def iterators(self) -> Any:
        """Return an iterator on each worker."""
        if self._iterators is None:
            found = self.coordinator.create_per_worker_dataset(self._dataset_fn)
            self._iterators = iter(found)
        return self._iterators

    def reserved(self, count: int) -> int:
        """Reserve `count` batches in a row; return the number of the first."""
        # Numbers go on over epochs: a worker's iterator never goes back.
        first = self._used
        self._used += count
        return first

    def follow(self, finish: Callable[[], None]) -> None:
        """Call `finish` whenever `settle` has seen all steps end."""
        self._finish = finish

    def settle(self) -> None:
        """Wait until all scheduled steps have ended."""
        self.coordinator.join()
        if self._finish is not None:
            self._finish()

    def __iter__(self) -> Batches:
        return Batches(self)


class Batches:
    """One pass over the data. Iterating over it reads here; `schedule` has a worker read."""

    def __init__(self, data: WorkerData) -> None:
        self.data = data
        self._step = 0
        self._first: int | None = None
        self._local: Any = None

    def schedule(self, from_worker: Any, from_chief: Any) -> Any:
        """Send a step to a worker; return its result to come, or None at the end of the data.

        Parameters
        ----------
        from_worker
            A function of an iterator and the number of the batch (:func:`of_worker`).
        from_chief
            A function of a batch.
        """
        coordinator, length = self.data.coordinator, self.data.length
        if not self.data.is_on_workers:
            batch = next(self, None)
            return None if batch is None else coordinator.schedule(from_chief, (batch,))
        if length is not None and self._step >= length:
            return None
        if length is None:
            number = self.data.reserved(1)
        else:  # an epoch that ends early leaves the rest of its pass unread
            self._first = self.data.reserved(length) if self._first is None else self._first
            number = self._first + self._step
        self._step += 1
        iterators = self.data.iterators()
        return coordinator.schedule(from_worker, (iterators, tf.constant(number, tf.int64)))

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        if self._local is None:
            self._local = iter(self.data.dataset)
        return next(self._local)


def of_worker(step: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return `step` as a function of an iterator on a worker, and the number of the batch.

    Batches before that one are skipped: other workers had them.
    """

    def from_worker(iterator: Any, number: tf.Tensor) -> Any:
        found, batch = iterator.get_next()
        flat = tf.nest.flatten(batch, expand_composites=True)
        # The loop runs in the graph, and carries tensors only: a batch may hold None, too.
        places = [i for i, one in enumerate(flat) if one is not None]

        def behind(_: Any, *__: Any) -> list[Any]:
            position, later = iterator.get_next()
            parts = tf.nest.flatten(later, expand_composites=True)
            return [position, *(parts[i] for i in places)]

        _, *parts = tf.while_loop(
            lambda position, *_: position < number, behind, [found, *(flat[i] for i in places)]
        )
        for place, part in zip(places, parts, strict=True):
            flat[place] = part
        return step(tf.nest.pack_sequence_as(batch, flat, expand_composites=True))

    return from_worker
