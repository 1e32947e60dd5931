"""`DistributedDataset`: feed each replica its own batches."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.input.array_spec import spec_of
from mpistrat.strategy.input.datasets import Dataset
from mpistrat.strategy.input.gpu_batches import GpuBatches
from mpistrat.strategy.input.input_context import (
    AutoShardPolicy,
    InputContext,
    InputOptions,
    InputReplicationMode,
)
from mpistrat.strategy.input.iterator import (
    MISSING,
    DistributedIterator,
    InputIterator,
    InputWorkers,
)
from mpistrat.strategy.input.position import DataPosition
from mpistrat.strategy.input.source import (
    as_dataset,
    cut_raw,
    dataset_length,
    dataset_spec,
    elements,
    grouped,
    open_epoch,
)
from mpistrat.strategy.nest import map_nest
from mpistrat.types import Nest

__all__ = [
    "DistributedDataset",
    "DistributedDatasetsFromFunction",
    "DistributedIterator",
    "InputIterator",
    "InputWorkers",
    "make_numpy_dataset",
]


class _Distributed:
    """Base of both kinds of distributed data set."""

    may_end_apart = True

    def __init__(self, workers: InputWorkers, options: InputOptions | None) -> None:
        if not isinstance(options, (InputOptions, type(None))):
            raise ArgumentTypeError(
                f"options is a {type(options).__name__}; expected mpistrat.InputOptions"
            )
        self.workers = workers
        self.options = options or InputOptions()
        self.gpu_batches: GpuBatches | None = None
        has_gpus = any(gpu is not None for gpu in workers.gpus)
        if has_gpus and self.options.experimental_fetch_to_device:
            self.gpu_batches = GpuBatches(workers.gpus)
        self.buffer_size = self.options.experimental_per_replica_buffer_size * workers.num_local
        # Epochs are counted here, not in the data set: a rank that looks into its data set on
        # its own must not get another shuffle than its peers.
        self._begins_at = (0, 0)
        self._newest: Callable[[], DistributedIterator | None] = lambda: None

    def __iter__(self) -> DistributedIterator:
        (epoch, skip), self._begins_at = self._begins_at, (self._begins_at[0] + 1, 0)
        iterator = DistributedIterator(self, epoch, skip)
        self._newest = weakref.ref(iterator)
        return iterator

    @property
    def position(self) -> DataPosition:
        """How far the data have been read, to be saved in a checkpoint.

        After a restore ``iter()`` goes on there: in the same pass over the data, after the last
        step that the newest iterator had handed out.
        """
        return DataPosition(self.tell, self.seek)

    def tell(self) -> tuple[int, int]:
        """Return the pass over the data that the newest iterator is in, and its steps done.

        **Local**, the same on all ranks.
        """
        newest = self._newest()
        if newest is None or newest.has_ended:
            return self._begins_at
        return newest.epoch, newest.steps_done

    def seek(self, epoch: int, steps: int) -> None:
        """Let the next ``iter()`` begin in a pass over the data after some steps. **Local.**"""
        self._newest, self._begins_at = (lambda: None), (epoch, steps)

    def __bool__(self) -> bool:
        return True

    def steps(self, epoch: int, skip: int = 0) -> Iterator[list[Nest]]:
        """Yield one list a step after the first `skip`, as `Source` has it."""
        raise NotImplementedError

    def local_spec(self) -> Nest:
        """Return the nest of `ArraySpec` of one replica's batch."""
        raise NotImplementedError

    @property
    def element_spec(self) -> Nest:
        """Return what a step holds: a nest of `ArraySpec`, as per-replica values if several.

        Where batches are cut, the first dimension is None: the last batch is often smaller.
        """
        count = self.workers.num_local
        if count == 1:
            return self.local_spec()
        from mpistrat.strategy.values import PerReplica

        return map_nest(lambda spec: PerReplica([spec] * count), self.local_spec())


class DistributedDataset(_Distributed):
    """Cut the global batches of one data set over the replicas.

    Parameters
    ----------
    dataset
        A re-iterable of nests of arrays, each a global batch; or an array or a tuple or dict of
        arrays, each row of which is an element.
    workers
        Which replicas there are.
    options
        Of which `auto_shard_policy` and the buffer size matter here.

    Raises
    ------
    UsageError
        The policy is FILE or HINT. While iterating: a batch that cannot be cut.
    ArgumentTypeError
        The data set can be walked only once, or not at all.

    Notes
    -----
    AUTO and DATA: all ranks must have the same data set, in the same order: give what shuffles a
    seed. Of arrays and lists they compare some rows before (data_check.py). Each walks all
    of it and keeps the rows of its own replicas, so that all end at the same step without talking.
    A batch of n rows is cut into contiguous pieces, of which the first ``n % num_replicas`` are
    one row longer.

    OFF: each rank has a data set of its own. Its batches are cut into `num_replicas` pieces all
    the same, which its replicas take one after the other.

    With one replica over all ranks the batches pass unchanged, whatever their shape.
    """

    def __init__(
        self, dataset: Any, workers: InputWorkers, options: InputOptions | None = None
    ) -> None:
        super().__init__(workers, options)
        policy = self.options.auto_shard_policy
        if policy in (AutoShardPolicy.FILE, AutoShardPolicy.HINT):
            raise UsageError(
                f"auto_shard_policy={policy.name}: arrays do not come from files that could be"
                " shared out; use AutoShardPolicy.DATA, or OFF with a data set for each rank"
            )
        self.may_end_apart = policy == AutoShardPolicy.OFF
        self._dataset = as_dataset(dataset)

    def steps(self, epoch: int, skip: int = 0) -> Iterator[list[Nest]]:
        """Yield one list a step after the first `skip`, as `Source` has it."""
        raw, load = open_epoch(self._dataset, epoch)
        if self.may_end_apart and self.workers.num_replicas > 1:
            pieces = (p for batch in raw for p in cut_raw(batch, load, self.workers.num_replicas))
            return itertools.islice(grouped(pieces, self.workers.num_local), skip, None)
        left = itertools.islice(raw, skip, None)  # of which nothing that is left out is loaded
        if self.workers.num_replicas == 1:
            return ([load(batch)] for batch in left)
        return self._own_pieces(left, load)

    def _own_pieces(self, raw: Iterator[Any], load: Callable[[Any], Nest]) -> Iterator[list[Nest]]:
        w = self.workers
        return (cut_raw(b, load, w.num_replicas, w.first_replica, w.num_local) for b in raw)

    def local_spec(self) -> Nest:
        """Return the nest of `ArraySpec` of one replica's batch."""
        return spec_of(dataset_spec(self._dataset), unknown_batch=self.workers.num_replicas > 1)

    def __len__(self) -> int:
        if self.may_end_apart and self.workers.num_pipelines > 1:
            raise ArgumentTypeError("len: with OFF the ranks may have different numbers of steps")
        return dataset_length(self._dataset)


class DistributedDatasetsFromFunction(_Distributed):
    """Feed the replicas from data sets that a function makes, without cutting or sharding.

    Parameters
    ----------
    dataset_fn
        Called here, once a rank with its `InputContext` (PER_WORKER), or once for each local
        replica (PER_REPLICA). Returns a re-iterable of batches for one replica, or a function
        that returns the next batch each time.
    workers
        Which replicas there are.
    options
        Of which the replication mode and the buffer size matter here.

    Raises
    ------
    ArgumentTypeError
        `dataset_fn` is no function, or what it returns can be walked only once or not at all.

    Notes
    -----
    Local replicas take one batch each from their rank's data set, in order. At the end those
    left without get batches of no rows. Over several ranks the iterator is **Collective**.
    """

    def __init__(
        self,
        dataset_fn: Callable[[InputContext], Any],
        workers: InputWorkers,
        options: InputOptions | None = None,
    ) -> None:
        super().__init__(workers, options)
        if not callable(dataset_fn):
            raise ArgumentTypeError(
                f"dataset_fn is a {type(dataset_fn).__name__}; expected a function that takes an"
                " InputContext; a data set itself goes to experimental_distribute_dataset"
            )
        self._datasets = [_made_by(dataset_fn, context) for context in self._contexts()]

    def _contexts(self) -> list[InputContext]:
        workers = self.workers
        replicas = workers.num_replicas
        if self.options.experimental_replication_mode is InputReplicationMode.PER_WORKER:
            return [InputContext(workers.num_pipelines, workers.pipeline_id, replicas)]
        return [
            InputContext(replicas, workers.first_replica + index, replicas)
            for index in range(workers.num_local)
        ]

    def steps(self, epoch: int, skip: int = 0) -> Iterator[list[Nest]]:
        """Yield one list a step after the first `skip`, as `Source` has it."""
        streams = [elements(data, epoch) for data in self._datasets]
        steps: Iterator[list[Nest]] = grouped(streams[0], self.workers.num_local)
        if len(streams) == self.workers.num_local:
            steps = map(list, itertools.zip_longest(*streams, fillvalue=MISSING))
        return itertools.islice(steps, skip, None)

    def local_spec(self) -> Nest:
        """Return the nest of `ArraySpec` of one replica's batch."""
        return spec_of(dataset_spec(self._datasets[0]), unknown_batch=True)

    def __len__(self) -> int:
        if self.workers.num_pipelines > 1:
            raise ArgumentTypeError("len: the ranks may have different numbers of steps")
        lengths = [dataset_length(data) for data in self._datasets]
        return max(lengths) if len(lengths) > 1 else -(-lengths[0] // self.workers.num_local)


def make_numpy_dataset(numpy_input: Nest) -> Dataset:
    """Make a data set of the rows of a nest of arrays.

    Parameters
    ----------
    numpy_input
        Arrays, in tuples and dicts. A list of arrays is stacked, but not within a dict.

    Raises
    ------
    UsageError
        A dict holds a list of arrays, or the lengths along axis 0 differ. It is a ValueError.
    """
    check_numpy_input(numpy_input)
    return Dataset.from_tensor_slices(numpy_input)


def check_numpy_input(numpy_input: Nest) -> None:
    """Raise UsageError if a dict in `numpy_input` holds a list of arrays."""
    import optree

    def refuse(part: object) -> bool:
        if isinstance(part, dict) and any(_is_list_of_arrays(item) for item in part.values()):
            raise UsageError(
                "make_numpy_dataset: a dict holds a list of arrays; expected arrays: stack them"
                " with numpy.stack, or put them in a tuple"
            )
        return isinstance(part, list)

    optree.tree_leaves(numpy_input, is_leaf=refuse, none_is_leaf=True)


def _is_list_of_arrays(part: object) -> bool:
    return isinstance(part, list) and any(hasattr(item, "shape") for item in part)


def _made_by(dataset_fn: Callable[[InputContext], Any], context: InputContext) -> Any:
    made = dataset_fn(context)
    if callable(made) and not hasattr(made, "__iter__"):
        # iter() calls the function until that raises StopIteration: it never returns MISSING.
        return Dataset.from_generator(lambda: iter(made, MISSING))
    return as_dataset(made)
