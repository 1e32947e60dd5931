"""`Strategy`: the methods that users call; extended.py does what they ask for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mpistrat.errors import ArgumentTypeError
from mpistrat.strategy import context
from mpistrat.strategy.context import Mode
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.input.data_check import compare_data
from mpistrat.strategy.input.distributed import (
    DistributedDataset,
    DistributedDatasetsFromFunction,
)
from mpistrat.strategy.input.input_context import (
    InputContext,
    InputOptions,
    RunOptions,
    ValueContext,
)
from mpistrat.strategy.input.iterator import InputWorkers
from mpistrat.strategy.input.source import as_dataset
from mpistrat.strategy.nest import is_nested, map_nest
from mpistrat.strategy.older_members import OlderMembers
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.values import DistributedValues, PerReplica, regroup
from mpistrat.types import Array, Nest

if TYPE_CHECKING:
    from typing_extensions import Self

    from mpistrat.collectives.communicator import Communicator

__all__ = ["Strategy"]


class Strategy(OlderMembers):
    """Replicas of a computation, and how they share state and results.

    Use a subclass: `OneDeviceStrategy`, `MirroredStrategy`, `MultiWorkerMirroredStrategy`,
    `CentralStorageStrategy`.
    Every rank makes the strategy and makes the same calls in the same order.

    References
    ----------
    tf.distribute.Strategy.
    """

    _extended: StrategyExtended

    # ----------------------------------------------------------------------------- properties

    @property
    def extended(self) -> StrategyExtended:
        """Members that libraries use."""
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas over all ranks."""
        return self._extended.num_replicas

    @property
    def communicator(self) -> Communicator:
        """Collectives of arrays between the ranks of this strategy, which know their ``rank``.

        Of strategies that keep to one process it is one of this process alone.
        """
        return self._extended.communicator

    @property
    def cluster_resolver(self) -> Any:
        """The resolver of the job's roles; None if the strategy has none."""
        return None

    # ----------------------------------------------------------------------------------- scope

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """Make this strategy current in a ``with`` block, for the current thread. **Local.**

        Variables made in it are this strategy's. ``run`` and ``reduce`` enter it by themselves.

        Raises
        ------
        ContextError
            Inside a replica function, or in the scope of another strategy.
        """
        self._extended.require_cross_replica()
        with context.enter(Mode(self, None)), self._extended.placement.current():
            yield self

    # ------------------------------------------------------------------------------------- run

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Nest:
        """Call `fn` once for each replica of this rank.

        Parameters
        ----------
        fn
            The replica function; it can call ``get_replica_context()``.
        args, kwargs
            Its arguments; of each `DistributedValues` in them a replica gets its own value.
        options
            Kept for TensorFlow's signature.

        Returns
        -------
        nest
            The structure that `fn` returned. Leaves are `PerReplica` where replicas differ, bare
            where all returned the same object or the rank has one replica.

        Raises
        ------
        Exception
            What `fn` raised. The other ranks get `PeerLostError` in their next collective,
            unless they fail alike.

        Notes
        -----
        **Local**, unless `fn` calls collectives. Several replicas of a rank run in turn.

        References
        ----------
        tf.distribute.Strategy.run.
        """
        del options
        if not isinstance(args, (list, tuple)):
            raise ArgumentTypeError(
                f"positional args must be a list or tuple, got {type(args).__name__}; write"
                " args=(x,) for one argument"
            )
        return self._extended.call_for_each_replica(fn, args, kwargs)

    # ---------------------------------------------------------------------------- collectives

    def reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Nest,
        axis: int | Sequence[int] | None = None,
    ) -> Nest:
        """Combine `value` over all replicas; every rank gets the result.

        Parameters
        ----------
        reduce_op
            SUM or MEAN, or the name in any case; equal on all ranks.
        value
            Result of ``run``: `PerReplica`, or bare on a rank with one replica. With several
            replicas a bare value is one that all share: its SUM is refused, its MEAN is itself,
            and with `axis` it counts once for each replica. Nests are reduced leaf by leaf.
        axis
            None combines elementwise. A dimension (or several) is summed in each replica first;
            lengths along it may differ, and MEAN divides by the true number of elements.

        Returns
        -------
        nest of numpy.ndarray or cupy.ndarray
            New arrays; on the GPU of this rank's first replica, where all ranks have one. MEAN of
            integers is float64; their SUM keeps their dtype, and wraps. Of bools the SUM along an
            axis counts, in int64, as NumPy's does; the elementwise one is a logical or.

        Raises
        ------
        UsageError
            Another `reduce_op`; `axis` out of range; unequal shapes with ``axis=None``.
        MismatchError
            The ranks called different things, or with unequal shapes or dtypes.
        ContextError
            Inside a replica function; use ``get_replica_context().all_reduce``.

        Notes
        -----
        **Collective**, blocks.

        References
        ----------
        tf.distribute.Strategy.reduce.
        """
        self._extended.require_cross_replica()
        combiner = self._extended.combiner
        op = combiner.check_op(reduce_op)
        if axis is not None:
            return combiner.reduce_axes(op, value, axis)
        # A sum of one array is what training loops ask for most: it has a path of its own.
        if op is ReduceOp.MEAN or is_nested(value):
            return combiner.reduce_shared(op, value)
        return combiner.sum_array(value)

    def gather(self, value: Any, axis: int) -> Array:
        """Concatenate `value` of all replicas along `axis`, in replica order, on every rank.

        Parameters
        ----------
        value
            As in :meth:`reduce`; at least 1-d. With several replicas on this rank a bare value
            is returned as it is.
        axis
            0 to ndim - 1; lengths along it may differ between replicas, all else must agree.

        Notes
        -----
        **Collective**, blocks.

        References
        ----------
        tf.distribute.Strategy.gather.
        """
        self._extended.require_cross_replica()
        return self._extended.combiner.gather(value, axis)

    # ---------------------------------------------------------------------------------- values

    def experimental_local_results(self, value: Nest) -> tuple[Any, ...]:
        """Return the values of this rank's replicas, in their order, as a tuple. **Local.**"""
        if isinstance(value, DistributedValues):
            return value.values
        if not is_nested(value):
            return (value,)
        count = self._extended.num_local_replicas

        def pick(index: int) -> Callable[[Any], Any]:
            return lambda leaf: leaf.values[index] if isinstance(leaf, DistributedValues) else leaf

        return tuple(map_nest(pick(index), value) for index in range(count))

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], Any]
    ) -> PerReplica:
        """Call `value_fn` with a `ValueContext` for each replica of this rank. **Local.**"""
        self._extended.require_cross_replica()
        first, total = self._extended.first_replica, self.num_replicas_in_sync
        values = []
        for index in range(self._extended.num_local_replicas):
            with self._extended.placement.current_of(index):
                values.append(value_fn(ValueContext(first + index, total)))
        # As TensorFlow's mirrored strategies, a PerReplica also for a single replica.
        merged: PerReplica = regroup(values, PerReplica, always_wrap=True)
        return merged

    # ----------------------------------------------------------------------------------- input

    def experimental_distribute_dataset(
        self, dataset: Any, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Cut the *global* batches of `dataset` over the replicas. **Collective.**

        Parameters
        ----------
        dataset
            Any re-iterable of nests of arrays, or an array (its rows are the elements).
        options
            ``auto_shard_policy`` DATA (default): all ranks walk the same dataset, each takes its
            part. OFF: each rank has its own.

        Raises
        ------
        UsageError
            The ranks' arrays differ, or the order in which they come (data_check.py).

        References
        ----------
        tf.distribute.Strategy.experimental_distribute_dataset.
        """
        self._extended.require_cross_replica()
        workers, data = self._workers(), as_dataset(dataset)
        distributed = DistributedDataset(data, workers, options)
        if workers.num_replicas > workers.num_local and not distributed.may_end_apart:
            compare_data(self._extended.communicator, data)
        return distributed

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDatasetsFromFunction:
        """Take batches for *one replica* each from the dataset that `dataset_fn` makes.

        Parameters
        ----------
        dataset_fn
            Called once on each rank with an `InputContext`; it batches and shards by itself.
        options
            See `InputOptions`.

        References
        ----------
        tf.distribute.Strategy.distribute_datasets_from_function.
        """
        self._extended.require_cross_replica()
        return DistributedDatasetsFromFunction(dataset_fn, self._workers(), options)

    def _workers(self) -> InputWorkers:
        extended = self._extended
        return InputWorkers(
            num_replicas=extended.num_replicas,
            # Not first_replica: workers of parameter servers cut batches for themselves alone.
            first_replica=extended.first_piece,
            num_local=extended.num_local_replicas,
            num_pipelines=extended.communicator.size,
            pipeline_id=extended.communicator.rank,
            regroup=partial(regroup, always_wrap=extended.num_local_replicas > 1),
            any_has_data=extended.combiner.any_rank,
            gpus=extended.placement.gpus,
        )

    # ------------------------------------------------------------------------------------- end

    def close(self) -> None:
        """Free the communicator; every later call is refused. **Collective**, idempotent."""
        self._extended.communicator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # After an error the other ranks may not come to a close(), which waits for them.
        self._extended.communicator.end(error)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a strategy of its own over the same ranks; closing either closes both."""
        result = copy.copy(self)
        memo[id(self)] = result
        result._extended = copy.copy(self._extended)
        # Replica contexts name their strategy: those of the copy are made anew.
        result._extended.bind(result)
        return result

    def __repr__(self) -> str:
        communicator = self._extended.communicator
        return (
            f"<{type(self).__name__}: {self.num_replicas_in_sync} replicas, rank"
            f" {communicator.rank}/{communicator.size}>"
        )
