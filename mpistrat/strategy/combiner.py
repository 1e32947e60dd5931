"""Combine values over all replicas: those of this rank and those of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import as_array
from mpistrat.collectives.reductions import result_dtype
from mpistrat.errors import UsageError
from mpistrat.strategy.axis_reduction import reduce_along
from mpistrat.strategy.communication_options import CommunicationOptions
from mpistrat.strategy.cross_device_ops import CollectiveAllReduce, CrossDeviceOps
from mpistrat.strategy.gathering import gather_local
from mpistrat.strategy.nest import flatten, is_nested, map_nest
from mpistrat.strategy.reduce_op import ReduceOp
from mpistrat.strategy.values import DistributedValues, Mirrored
from mpistrat.types import Array, Nest

__all__ = ["Combiner"]


class Combiner:
    """What strategies and variables use to combine values; contexts are checked by the callers.

    Parameters
    ----------
    communicator
        Over the ranks.
    cross_device_ops
        How values are combined.
    num_local
        Replicas on this rank.
    options
        Of calls that are given none.
    """

    def __init__(
        self,
        communicator: Communicator,
        cross_device_ops: CrossDeviceOps,
        num_local: int,
        options: CommunicationOptions,
    ) -> None:
        self.communicator = communicator
        self.cross_device_ops = cross_device_ops
        self.num_local = num_local
        self.options = options
        is_default = type(cross_device_ops) is CollectiveAllReduce
        self._is_plain = is_default and num_local == 1 and communicator.size > 1

    def refuse(self, error: Exception) -> NoReturn:
        """Raise `error` without leaving other ranks waiting in the call that it is about."""
        self.communicator.refuse(error)
        raise error

    def distributed(self, op: ReduceOp, value: Any) -> Any:
        """Return `value` as the replicas' values: a bare one is that of the only local replica.

        With several local replicas a bare value is one that all replicas share: its mean is
        itself, and its sum is refused, since it is more likely a mistake.
        """
        if isinstance(value, DistributedValues) or self.num_local == 1:
            return value
        if op is ReduceOp.SUM:
            raise UsageError(
                f"A non-DistributedValues value {value!r} cannot be reduced with the given reduce"
                f" op {op}; expected one value for each of the {self.num_local} replicas"
                " of this rank, e.g. a result of run()"
            )
        return DistributedValues([value] * self.num_local)

    def reduce_one(self, op: ReduceOp, value: Any) -> Array:
        """Combine one value over all replicas; a new array. **Collective.**"""
        result: Array = self.reduce_nest(op, value, None)
        return result

    def reduce_nest(self, op: ReduceOp, value: Nest, options: CommunicationOptions | None) -> Nest:
        """Combine each leaf over all replicas, packed; a nest of new arrays. **Collective.**"""
        options = options or self.options
        ops = self.cross_device_ops
        leaves, structure = flatten(value) if is_nested(value) else ([value], None)
        if type(ops) is CollectiveAllReduce:
            results = ops.totals(op, leaves, options)
        else:
            pairs = [(leaf, None) for leaf in leaves]
            results = [one.values[0] for one in ops.batch_reduce(op, pairs, options)]
        return results[0] if structure is None else structure.unflatten(results)

    def sum_one(self, op: ReduceOp, value: Any) -> Array:
        """Sum one value over all replicas; the short way where there is one. **Collective.**"""
        if self._is_plain and not isinstance(value, DistributedValues):
            return self.communicator.allreduce(value, timeout=self.options.timeout_seconds)
        total: Array = self.reduce_shared(op, value)
        return total

    def reduce_shared(self, op: ReduceOp, value: Nest) -> Nest:
        """Do :meth:`reduce_nest` after applying the rule for bare values. **Collective.**"""
        try:
            value = map_nest(lambda leaf: self.distributed(op, leaf), value)
        except UsageError as error:
            self.refuse(error)
        return self.reduce_nest(op, value, None)

    def reduce_axis(
        self,
        op: ReduceOp,
        value: Any,
        axis: int | Sequence[int],
        options: CommunicationOptions | None = None,
    ) -> Array:
        """Combine one value over all replicas and along `axis` of each. **Collective.**"""
        is_shared = self.num_local > 1 and not isinstance(value, DistributedValues)
        values = value.values if isinstance(value, DistributedValues) else (value,)
        if is_shared:
            values *= self.num_local
        try:
            sums, counts = reduce_along(values, axis)
        except UsageError as error:
            self.refuse(error)
        dtype = as_array(values[0]).dtype
        if op is ReduceOp.SUM:
            total = self.reduce_nest(op, sums, options)
            return np.asarray(total.astype(dtype, copy=False))
        total, count = self.reduce_nest(ReduceOp.SUM, (sums, counts), options)
        mean = np.true_divide(total, count)
        return np.asarray(mean.astype(result_dtype("mean", dtype), copy=False))

    def gather(self, value: Any, axis: int, options: CommunicationOptions | None = None) -> Array:
        """Concatenate one value over all replicas along `axis`. **Collective.**"""
        if self.num_local > 1 and not isinstance(value, DistributedValues):
            return np.asarray(value)
        try:
            mine, axis = gather_local(value, axis)
        except UsageError as error:
            self.refuse(error)
        if self.communicator.size == 1:
            return mine
        timeout = (options or self.options).timeout_seconds
        return self.communicator.allgather(mine, axis, timeout=timeout)

    def broadcast_first(self, value: Any) -> Array:
        """Return rank 0's value on every rank. **Collective.**"""
        return self.communicator.bcast(value, timeout=self.options.timeout_seconds)

    def any_rank(self, flag: bool) -> bool:
        """Tell whether `flag` is set on any rank. **Collective** if there are several."""
        if self.communicator.size == 1:
            return flag
        return bool(self.communicator.allreduce(np.array(flag), "or"))

    def copies(self, value: Array) -> Mirrored:
        """Return one array for each local replica, none of them shared."""
        others = (value.copy() for _ in range(self.num_local - 1))
        return Mirrored([value, *others])
