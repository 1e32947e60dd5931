"""Iterators over distributed data sets: fill, agree on the end, hand out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mpistrat.errors import UsageError
from mpistrat.strategy.input.cutting import empty_like, empty_of, has_rows
from mpistrat.strategy.input.gpu_batches import GpuBatches, PendingBatch
from mpistrat.strategy.input.prefetch import Prefetcher
from mpistrat.types import Nest

__all__ = ["MISSING", "DistributedIterator", "InputIterator", "InputWorkers", "Source"]

MISSING: Any = object()
"""In place of a batch, for a local replica that there is no data for."""


@dataclass(frozen=True)
class InputWorkers:
    """Which replicas there are, and how a strategy joins what they get.

    Parameters
    ----------
    num_replicas
        Replicas over all ranks.
    first_replica, num_local
        The global id of this rank's first replica, and how many it has.
    num_pipelines, pipeline_id
        The number of ranks, and this one.
    regroup
        Joins one nest per local replica, of one structure, into a nest of per-replica values
        (the nest itself if there is one replica).
    any_has_data
        **Collective** over the ranks; called at the same step on all. True if any rank passes
        True.
    gpus
        Index of the GPU of each local replica, where its batches go; None for one on a CPU.
    """

    num_replicas: int
    first_replica: int
    num_local: int
    num_pipelines: int
    pipeline_id: int
    regroup: Callable[[Sequence[Nest]], Nest]
    any_has_data: Callable[[bool], bool]
    gpus: Sequence[int | None] = ()


class Source(Protocol):
    """What an iterator needs to know of its distributed data set."""

    workers: InputWorkers
    may_end_apart: bool
    gpu_batches: GpuBatches | None
    buffer_size: int

    def steps(self, epoch: int, skip: int = 0) -> Iterator[list[Nest]]:
        """Yield one list a step, with a batch or MISSING for each local replica.

        The first `skip` steps of the epoch are left out.
        """
        ...

    def local_spec(self) -> Nest:
        """Return the spec of one replica's batch."""
        ...

    @property
    def element_spec(self) -> Nest:
        """Return the spec of what the iterator yields."""
        ...

    def __iter__(self) -> DistributedIterator:
        """Start an epoch."""
        ...


class DistributedIterator(Iterator[Nest]):
    """Yield one step after another: a batch for each local replica, joined by the strategy.

    Notes
    -----
    Where ranks read data of their own (`AutoShardPolicy.OFF`, data set functions), they may run
    dry at different steps. Then ``next`` is **Collective** over more than one rank, one small
    all-reduce a step, and ranks without data get batches of no rows until all have ended.
    Otherwise it is **Local**. It blocks while no step is ready.

    Attributes
    ----------
    epoch
        The number of this pass over the data.
    steps_done
        How many steps of it have been handed out, here or before a restart.
    has_ended
        Whether there are no more.
    """

    def __init__(self, source: Source, epoch: int, skip: int = 0) -> None:
        self._source = source
        self.epoch, self.steps_done = epoch, skip
        steps = source.steps(epoch, skip)
        if source.gpu_batches is not None:
            steps = map(partial(source.gpu_batches.begin, MISSING), steps)
        # The thread only reads data. Collectives are left to next(): their order has to be the
        # same on all ranks, and threads would change it.
        self._steps = Prefetcher(steps, source.buffer_size) if source.buffer_size else steps
        self._example: Nest = MISSING
        self._fills: bool | None = None
        self.has_ended = False

    def __next__(self) -> Nest:
        step = None if self.has_ended else next(self._steps, None)
        # Once ended, it asks nobody: the other ranks come to no further collective of this
        # iterator.
        if self.has_ended or not self._decide(step):
            self.has_ended = True
            raise StopIteration
        workers = self._source.workers
        local = [MISSING] * workers.num_local if step is None else step
        filled = [self._fill(batch) for batch in local]
        self.steps_done += 1
        on_gpus = self._source.gpu_batches
        return workers.regroup(filled if on_gpus is None else on_gpus.finish(filled))

    def get_next(self) -> Nest:
        """Return the next step; raise StopIteration at the end."""
        return next(self)

    @property
    def element_spec(self) -> Nest:
        """Return the spec of a step: see `DistributedDataset.element_spec`."""
        return self._source.element_spec

    def _decide(self, step: list[Nest] | None) -> bool:
        """Return whether this step is taken; pipelines that may end apart decide together."""
        workers = self._source.workers
        agrees = self._source.may_end_apart and workers.num_pipelines > 1
        if self._note_batch(step):
            has_data = step is not None
            return workers.any_has_data(has_data) if agrees else has_data
        # Without a batch axis nothing can stand in for a batch that is missing, so the first
        # replica to run dry ends the epoch for all, as in TensorFlow.
        lacks = step is None or any(batch is MISSING for batch in step)
        return not (workers.any_has_data(lacks) if agrees else lacks)

    def _note_batch(self, step: list[Nest] | None) -> bool:
        """Keep a batch as an example; return whether one without rows can be made like it."""
        for batch in step or ():
            if batch is not MISSING:
                self._example = batch.host if isinstance(batch, PendingBatch) else batch
                break
        if self._fills is None or self._example is MISSING:
            self._fills = self._has_rows()
        return self._fills

    def _has_rows(self) -> bool:
        try:
            known = self._example is not MISSING
            return has_rows(self._example if known else self._source.local_spec())
        except UsageError:
            return True  # never seen a batch: the peers must not wait for our complaint

    def _fill(self, batch: Nest) -> Nest:
        if batch is not MISSING:
            return batch
        if self._example is not MISSING:
            return empty_like(self._example)
        try:
            return empty_of(self._source.local_spec())
        except UsageError as error:
            workers = self._source.workers
            raise UsageError(
                f"rank {workers.pipeline_id}/{workers.num_pipelines}: this rank's data set is"
                " empty while others have data, and it does not tell the shape of its elements;"
                " give it at least one element, or an element_spec (from_generator takes an"
                " output_signature)"
            ) from error


class InputIterator:
    """The iterator of ``make_dataset_iterator`` and ``make_input_fn_iterator``.

    It starts by itself when it is first used; `initialize` starts it again.
    """

    def __init__(self, dataset: Source) -> None:
        self._dataset = dataset
        self._iterator: DistributedIterator | None = None

    def initialize(self) -> list[Any]:
        """Start from the beginning; return the operations to run, of which there are none."""
        self._start()
        return []

    def _start(self) -> DistributedIterator:
        self._iterator = iterator = iter(self._dataset)
        return iterator

    @property
    def initializer(self) -> list[Any]:
        """Do what `initialize` does."""
        return self.initialize()

    def get_next(self) -> Nest:
        """Return the next step.

        Raises
        ------
        StopIteration
            The data set has ended; `initialize` starts it again.
        """
        return next(self._iterator or self._start())

    __next__ = get_next

    def __iter__(self) -> InputIterator:
        return self

    @property
    def element_spec(self) -> Nest:
        """Return the spec of a step: see `DistributedDataset.element_spec`."""
        return self._dataset.element_spec
