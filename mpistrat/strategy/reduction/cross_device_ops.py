"""Combine the replicas' values: first those of this rank, then over the ranks.

A strategy attaches its communicator to the object that it was given; an object that is attached
to none combines the values of one rank, as TensorFlow's do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.collectives.arrays.conversion import are_alike, can_be_sent
from mpistrat.collectives.backends.gpu.memory.local_arrays import summed
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.reduction.placement import HOST, ReplicaPlacement
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.reduction.shared_sums import SharedSums
from mpistrat.strategy.values import DistributedValues, Mirrored
from mpistrat.tables.reduction_ops import combine, narrow, result_dtype, widen, widened
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.collectives import Communicator

__all__ = [
    "CollectiveAllReduce",
    "CrossDeviceOps",
    "HierarchicalCopyAllReduce",
    "NcclAllReduce",
    "ReductionToOneDevice",
]

Pairs = Sequence[tuple[Any, Any]]

_SHAPE = attrgetter("shape")


class CrossDeviceOps:
    """Base of algorithms that combine the replicas' values; derive from it to add one.

    A subclass implements ``reduce_implementation`` and ``batch_reduce_implementation``.

    References
    ----------
    tf.distribute.CrossDeviceOps.
    """

    communicator: Communicator | None = None
    num_replicas: int | None = None
    placement: ReplicaPlacement = HOST  # of this rank's values; set by the strategy

    def attach(self, communicator: Communicator, num_replicas: int) -> None:
        """Combine over the ranks of `communicator` from now on; called by the strategy."""
        self.communicator, self.num_replicas = communicator, num_replicas

    def reduce(
        self,
        reduce_op: ReduceOp | str,
        per_replica_value: Any,
        destinations: Any,
        options: CommunicationOptions | None = None,
    ) -> Mirrored:
        """Combine one value of each replica. **Collective** once attached.

        Parameters
        ----------
        reduce_op
            SUM or MEAN.
        per_replica_value
            `DistributedValues`, or the value of the only local replica.
        destinations
            `DistributedValues` get a copy of the result for each of their values; anything else
            gets one.
        options
            Deadline and bucket size.

        Returns
        -------
        Mirrored
            A copy for each destination.
        """
        op = ReduceOp.of(reduce_op)
        options = options or CommunicationOptions()
        return self.reduce_implementation(op, per_replica_value, destinations, options)

    def batch_reduce(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Pairs,
        options: CommunicationOptions | None = None,
    ) -> list[Mirrored]:
        """Combine several values at once; as :meth:`reduce` for each pair."""
        op = ReduceOp.of(reduce_op)
        options = options or CommunicationOptions()
        return self.batch_reduce_implementation(op, value_destination_pairs, options)

    def broadcast(self, tensor: Any, destinations: Any) -> Mirrored:
        """Return a copy of `tensor` for each destination. **Local.**"""
        return self.broadcast_implementation(tensor, destinations)

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: Any,
        destinations: Any,
        options: CommunicationOptions,
    ) -> Mirrored:
        """See :meth:`reduce`; to be implemented by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} must implement reduce_implementation")

    def batch_reduce_implementation(
        self, reduce_op: ReduceOp, value_destination_pairs: Pairs, options: CommunicationOptions
    ) -> list[Mirrored]:
        """See :meth:`batch_reduce`; by default one value after the other."""
        return [
            self.reduce_implementation(reduce_op, value, destinations, options)
            for value, destinations in value_destination_pairs
        ]

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Mirrored:
        """See :meth:`broadcast`."""
        with self.placement.current():
            return self._copies(self.placement.operand(tensor).copy(), destinations)

    def _copies(self, value: Array, destinations: Any) -> Mirrored:
        """Return a copy for each destination, the first of which may be `value` itself."""
        several = isinstance(destinations, DistributedValues)
        return Mirrored(self.placement.copies(value, len(destinations.values) if several else 1))


class CollectiveAllReduce(CrossDeviceOps):
    """All-reduce over the ranks, lists packed into buckets: the default."""

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: Any,
        destinations: Any,
        options: CommunicationOptions,
    ) -> Mirrored:
        """Reduce a batch of one."""
        pair = (per_replica_value, destinations)
        return self.batch_reduce_implementation(reduce_op, [pair], options)[0]

    def batch_reduce_implementation(
        self, reduce_op: ReduceOp, value_destination_pairs: Pairs, options: CommunicationOptions
    ) -> list[Mirrored]:
        """Sum on this rank, then over the ranks."""
        totals = self.totals(reduce_op, [value for value, _ in value_destination_pairs], options)
        destinations = [destination for _, destination in value_destination_pairs]
        return [self._copies(t, d) for t, d in zip(totals, destinations, strict=True)]

    def totals(
        self,
        reduce_op: ReduceOp,
        values: Sequence[Any],
        options: CommunicationOptions,
        shared: SharedSums | None = None,
    ) -> list[Array]:
        """Return one combined array for each value: new ones, or arrays that `shared` owns."""
        with self.placement.current():
            return self._totals(reduce_op, values, options, shared)

    def _totals(
        self,
        reduce_op: ReduceOp,
        values: Sequence[Any],
        options: CommunicationOptions,
        shared: SharedSums | None,
    ) -> list[Array]:
        name = "mean" if reduce_op is ReduceOp.MEAN else "sum"
        with nullcontext() if self.communicator is None else self.communicator.checking():
            # Summed here first: one array a rank travels, however many replicas there are.
            columns = self._columns(values)
            sums = [self.local_sum(column) for column in _widened(name, columns)]
        if shared is None or self.communicator is None or self.communicator.size == 1:
            totals = self.over_ranks(sums, options)
        else:
            totals = shared.sum(sums, **_of_list(options))
        # Attached to no strategy, as in TensorFlow, it divides by this rank's replicas.
        count = self.num_replicas or (len(columns[0]) if columns else 1)
        return [
            narrow(name, total, result_dtype(name, column[0].dtype), count)
            for total, column in zip(totals, columns, strict=True)
        ]

    def _columns(self, values: Sequence[Any]) -> list[list[Array]]:
        """Return the arrays of this rank's replicas for each value."""
        if self.placement.gpu is None:
            rows = _by_replica(values)
            if rows is not None and _need_no_conversion(rows):
                return [list(column) for column in zip(*rows, strict=True)]
        return [self._arrays(value) for value in values]

    def _arrays(self, value: Any) -> list[Array]:
        if not isinstance(value, DistributedValues):
            return [self.placement.operand(value)]
        arrays = [self.placement.operand(one) for one in value.values]
        _check_alike(arrays)
        return arrays

    def local_sum(self, arrays: Sequence[Array]) -> Array:
        """Sum the arrays of this rank's replicas in their order."""
        if len(arrays) == 1:
            return arrays[0]
        if not isinstance(arrays[0], np.ndarray):
            return summed(arrays)
        return combine("sum", arrays)

    def over_ranks(self, sums: list[Array], options: CommunicationOptions) -> list[Array]:
        """Sum over the ranks."""
        communicator = self.communicator
        if communicator is None or communicator.size == 1:
            # The sum of a single value is the caller's own array; results are new ones.
            return [total.copy() for total in sums]
        if len(sums) == 1:
            return [communicator.allreduce(sums[0], timeout=options.timeout_seconds)]
        return communicator.allreduce_many(sums, **_of_list(options))


class ReductionToOneDevice(CollectiveAllReduce):
    """Reduce to one place (rank 0), then copy the result to all.

    Parameters
    ----------
    reduce_to_device
        Kept for TensorFlow's signature; values of a rank are combined where they are.
    accumulation_fn
        Combines a list of arrays of one rank; default their sum.
    """

    def __init__(
        self,
        reduce_to_device: str | None = None,
        accumulation_fn: Callable[[Sequence[Array]], Array] | None = None,
    ) -> None:
        self.reduce_to_device = reduce_to_device
        self._accumulate = accumulation_fn

    def local_sum(self, arrays: Sequence[Array]) -> Array:
        """Combine with ``accumulation_fn``."""
        if self._accumulate is None:
            return super().local_sum(arrays)
        return self.placement.operand(self._accumulate(arrays))

    def over_ranks(self, sums: list[Array], options: CommunicationOptions) -> list[Array]:
        """Reduce to rank 0 and broadcast."""
        communicator, timeout = self.communicator, options.timeout_seconds
        if communicator is None or communicator.size == 1:
            return [total.copy() for total in sums]
        results = []
        for mine in sums:
            total = communicator.reduce(mine, timeout=timeout)
            results.append(communicator.bcast(mine if total is None else total, timeout=timeout))
        return results


class _Packed(CollectiveAllReduce):
    """An all-reduce with TensorFlow's `num_packs`: accepted, without effect."""

    def __init__(self, num_packs: int = 1) -> None:
        if num_packs < 0:
            raise UsageError(f"num_packs={num_packs}; expected 0 (no packing) or more")
        self.num_packs = num_packs


class HierarchicalCopyAllReduce(_Packed):
    """All-reduce by stages, the ranks of a node first: accepted, left to the backend."""


class NcclAllReduce(_Packed):
    """TensorFlow's name, accepted: on GPUs NCCL carries what it can (docs/gpu.md)."""


def _of_list(options: CommunicationOptions) -> dict[str, Any]:
    """Return what `Communicator.allreduce_many` takes of the options."""
    return {"timeout": options.timeout_seconds, "bucket_bytes": options.bytes_per_pack or None}


def _check_alike(arrays: Sequence[Array]) -> None:
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape or array.dtype != arrays[0].dtype:
            what = "Shape" if array.shape != arrays[0].shape else "Dtype"
            raise UsageError(
                f"{what} mismatch, cannot reduce: replica 0 has shape {arrays[0].shape} and dtype"
                f" {arrays[0].dtype}, local replica {index} has shape {array.shape} and dtype"
                f" {array.dtype}; expected equal ones (with axis= shapes may differ along it)"
            )


def _by_replica(values: Sequence[Any]) -> list[list[Any]] | None:
    """Return each local replica's values; None if values differ in their number of replicas."""
    if not values or not isinstance(values[0], DistributedValues):
        return [list(values)]
    if not all(isinstance(value, DistributedValues) for value in values):
        return None
    each = [value.values for value in values]
    if len(set(map(len, each))) > 1:
        return None
    return [list(row) for row in zip(*each, strict=True)]


def _need_no_conversion(rows: list[list[Any]]) -> bool:
    """Tell whether `operand` and `_check_alike` can be skipped, by one look at whole lists."""
    if not rows or not all(map(are_alike, rows)):
        return False
    dtypes = {row[0].dtype for row in rows}
    shapes = [list(map(_SHAPE, row)) for row in rows] if len(rows) > 1 else []
    first = next(iter(dtypes))
    are_equal = len(dtypes) == 1 and all(row == shapes[0] for row in shapes)
    return are_equal and first.kind != "b" and can_be_sent(first)


def _widened(name: str, columns: list[list[Array]]) -> list[list[Array]]:
    if all(widened(name, column[0].dtype) == column[0].dtype for column in columns):
        return columns
    return [[widen(name, array) for array in column] for column in columns]


def check_cross_device_ops(value: Any) -> None:
    """Raise unless `value` is None or a `CrossDeviceOps`."""
    if value is not None and not isinstance(value, CrossDeviceOps):
        raise ArgumentTypeError(
            f"cross_device_ops={value!r} is a {type(value).__name__}; expected a CrossDeviceOps"
        )
