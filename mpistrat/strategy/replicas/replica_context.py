"""`ReplicaContext`: what a replica function can ask and do while it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.errors import ContextError, UsageError
from mpistrat.strategy import context
from mpistrat.strategy.nest import flatten, map_nest, text_of
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.values import DistributedValues
from mpistrat.types import Array, Nest

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy
    from mpistrat.strategy.reduction.combiner import Combiner
    from mpistrat.strategy.values import Mirrored

__all__ = ["ReplicaContext", "all_gather", "all_reduce", "check_equal", "gathered"]


class ReplicaContext:
    """The replica that runs this code; get it with ``get_replica_context()``.

    Parameters
    ----------
    strategy
        The strategy that runs the replica.
    local_index
        Index among the replicas of this rank.
    replica_id
        Index among all replicas.

    References
    ----------
    tf.distribute.ReplicaContext.
    """

    def __init__(self, strategy: Strategy, local_index: int, replica_id: int) -> None:
        self._strategy = strategy
        self.local_index = local_index
        self._replica_id = replica_id

    @property
    def strategy(self) -> Strategy:
        """The strategy that runs this replica."""
        return self._strategy

    @property
    def replica_id_in_sync_group(self) -> int:
        """Index of this replica among all, from 0."""
        return self._replica_id

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas over all ranks."""
        return self._strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of this replica, as a tuple of one."""
        return (self._strategy.extended.worker_devices[self.local_index],)

    @functools.cached_property
    def gpu(self) -> int | None:
        """Which GPU of this rank the replica runs on, where it is the current one, or None."""
        return gpu_devices.gpu_index(self.devices[0])

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Stop all replicas of this rank, and run ``merge_fn(strategy, ...)`` once across them.

        Parameters
        ----------
        merge_fn
            Called in cross-replica context; the arguments of the replicas come merged, as
            `PerReplica` where they differ.
        args, kwargs
            This replica's arguments.

        Returns
        -------
        object
            This replica's part of what `merge_fn` returned.
        """
        self._require_current()
        return self._strategy.extended.hand_over(self, merge_fn, tuple(args), dict(kwargs or {}))

    def all_reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Nest,
        options: CommunicationOptions | None = None,
    ) -> Nest:
        """Combine `value` over all replicas; every replica gets the result.

        **Collective** over all replicas, blocks. Lists are packed into few messages.

        Parameters
        ----------
        reduce_op
            SUM or MEAN, or the name in any case; equal on all replicas.
        value
            Nest of arrays; equal in structure, shapes and dtypes on all replicas.
        options
            Deadline and bucket size.

        Returns
        -------
        nest
            New arrays on this replica's device, owned by it. MEAN of integers is float64.

        References
        ----------
        tf.distribute.ReplicaContext.all_reduce.
        """
        return self.merge_call(all_reduce, (reduce_op, value, options))

    def all_gather(
        self, value: Nest, axis: int, options: CommunicationOptions | None = None
    ) -> Nest:
        """Concatenate `value` of all replicas along `axis`, in replica order, on every replica.

        **Collective** over all replicas, blocks. Lengths along `axis` may differ.

        References
        ----------
        tf.distribute.ReplicaContext.all_gather.
        """
        return self.merge_call(all_gather, (value, axis, options))

    def placed(self, value: Array) -> Any:
        """Return an array on this replica's device; on a CPU, unchanged."""
        return value if self.gpu is None else on_device.placed(value)

    def _require_current(self) -> None:
        if context.get_replica_context() is not self:
            raise ContextError(
                f"this is the context of replica {self._replica_id}, which does not run now; call"
                " get_replica_context() inside the replica function"
            )

    def __repr__(self) -> str:
        return (
            f"ReplicaContext(replica {self._replica_id} of {self.num_replicas_in_sync},"
            f" {self.devices[0]})"
        )


def all_reduce(strategy: Strategy, reduce_op: Any, value: Nest, options: Any = None) -> Nest:
    """Combine the values that the replicas handed over in a merge call. **Collective.**

    Parameters
    ----------
    strategy
        Whose replicas they are.
    reduce_op, value, options
        As of ``ReplicaContext.all_reduce``, merged.
    """
    strategy.extended.check_covers_all("all_reduce")
    combiner = strategy.extended.combiner
    with combiner.communicator.checking():
        check_equal("reduce_op", reduce_op)
    op = combiner.check_op(reduce_op)
    value = map_nest(combiner.of_each_replica, value)
    return map_nest(combiner.copies, combiner.reduce_nest(op, value, options))


def all_gather(strategy: Strategy, value: Nest, axis: Any, options: Any = None) -> Nest:
    """Concatenate the values that the replicas handed over; as :func:`all_reduce`."""
    strategy.extended.check_covers_all("all_gather")
    combiner = strategy.extended.combiner
    with combiner.communicator.checking():
        check_equal("axis", axis)
    leaves, structure = flatten(value)
    # Leaves are matched by position; ranks compare labels, and so the nests.
    with combiner.labelled_as(f"gather of {text_of(structure)}"):
        return structure.unflatten([gathered(combiner, leaf, axis, options) for leaf in leaves])


def gathered(combiner: Combiner, leaf: Any, axis: Any, options: Any = None) -> Mirrored:
    """Concatenate one value that the replicas handed over; a copy for each. **Collective.**"""
    return combiner.copies(combiner.gather(combiner.of_each_replica(leaf), axis, options))


def check_equal(name: str, value: Any) -> None:
    """Raise if the replicas gave different values for an argument of a merge call.

    Merging leaves equal ones as they are, and wraps others in `DistributedValues`.
    """
    if isinstance(value, DistributedValues) and not value.is_variable:
        raise UsageError(
            f"the replicas gave different {name}: {value.values}; expected equal ones"
        )
