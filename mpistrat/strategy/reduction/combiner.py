"""`Combiner`: reduce and gather values over all replicas, of this rank and of the others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import UsageError
from mpistrat.strategy.nest import flatten, is_nested, map_nest, text_of, text_of_list
from mpistrat.strategy.reduction.along_axis import reduce_along, summed_as
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.reduction.cross_device_ops import CollectiveAllReduce, CrossDeviceOps
from mpistrat.strategy.reduction.gathering import gather_local
from mpistrat.strategy.reduction.placement import ReplicaPlacement
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.reduction.shared_sums import SharedSums
from mpistrat.strategy.values import DistributedValues, Mirrored
from mpistrat.tables.reduction_ops import result_dtype
from mpistrat.types import Array, Nest

__all__ = ["Combiner"]


_LABELS = {op: f"{op.value} over replicas" for op in ReduceOp}


class _Labelled(AbstractContextManager[None]):
    """Set a communicator's label within a block."""

    def __init__(self, communicator: Communicator, label: str) -> None:
        self._communicator, self._label = communicator, label

    def __enter__(self) -> None:
        self._communicator.label = self._label

    def __exit__(self, *exc: object) -> None:
        self._communicator.label = None


class Combiner:
    """Reduce and gather values over all replicas; callers check that the context allows it.

    Parameters
    ----------
    communicator
        Over the ranks.
    cross_device_ops
        How values are combined.
    placement
        Where this rank's replicas are. Values are combined where it says, and results are there.
    options
        Options of calls that are made without any.
    """

    def __init__(
        self,
        communicator: Communicator,
        cross_device_ops: CrossDeviceOps,
        placement: ReplicaPlacement,
        options: CommunicationOptions,
    ) -> None:
        self.communicator = communicator
        self.cross_device_ops = cross_device_ops
        self.placement = placement
        self.num_local = num_local = len(placement.gpus)
        self.options = options
        is_default = type(cross_device_ops) is CollectiveAllReduce
        self.is_uneven = False  # whether some ranks have one replica and others several
        self._shared_sums = SharedSums(communicator)
        self._sum = _Labelled(communicator, _LABELS[ReduceOp.SUM])
        # Whether a bare array is summed by one call of the communicator, with nothing before it.
        self._is_plain = is_default and num_local == 1 and communicator.size > 1

    def check_op(self, reduce_op: ReduceOp | str) -> ReduceOp:
        """Return the member that `reduce_op` names; if there is none, all ranks raise."""
        try:
            return ReduceOp.of(reduce_op)
        except UsageError as error:
            self.communicator.refuse(error)

    def labelled(self, op: ReduceOp) -> AbstractContextManager[None]:
        """Label the communicator's calls in a block as reductions by `op`."""
        return _Labelled(self.communicator, _LABELS[op])

    def labelled_as(self, label: str) -> AbstractContextManager[None]:
        """Label the communicator's calls in a block; errors show the label."""
        return _Labelled(self.communicator, label)

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

    def of_each_replica(self, leaf: Any) -> Any:
        """Return a value for each local replica; a bare one came from each of them."""
        if isinstance(leaf, DistributedValues) or self.num_local == 1:
            return leaf
        return DistributedValues([leaf] * self.num_local)

    def lists_of_each_replica(self, leaves: list[Any]) -> list[Any]:
        """Do :meth:`of_each_replica` for each value of a list."""
        return leaves if self.num_local == 1 else [self.of_each_replica(leaf) for leaf in leaves]

    def reduce_one(self, op: ReduceOp, value: Any, what: str = "") -> Array:
        """Combine one value over all replicas; a new array. **Collective.**

        Ranks compare `what` it is.
        """
        label = f"{_LABELS[op]}, {what}" if what else None
        result: Array = self.reduce_nest(op, value, None, label)
        return result

    def reduce_nest(
        self,
        op: ReduceOp,
        value: Nest,
        options: CommunicationOptions | None,
        label: str | None = None,
        may_share: bool = False,
    ) -> Nest:
        """Combine each leaf over all replicas, packed; a nest of new arrays. **Collective.**

        Ranks compare the `label`. With `may_share` the results may be in memory that ranks share
        (shared_sums.py): the library may read them, but must not hand them to users.
        """
        leaves, structure = flatten(value) if is_nested(value) else ([value], None)
        label = label or _LABELS[op]
        if structure is not None:  # leaves are matched by position, so the ranks must agree on it
            label = f"{label}, of {text_of(structure)}"
        with _Labelled(self.communicator, label):
            results = self._reduce_leaves(op, leaves, options or self.options, may_share)
        return results[0] if structure is None else structure.unflatten(results)

    def reduce_list(
        self, op: ReduceOp, leaves: list[Any], label: str | None = None, may_share: bool = False
    ) -> list[Array]:
        """Do :meth:`reduce_nest` for a flat list, with less work in Python. **Collective.**"""
        label = f"{label or _LABELS[op]}, of {text_of_list(len(leaves))}"
        with _Labelled(self.communicator, label):
            return self._reduce_leaves(op, leaves, self.options, may_share)

    def _reduce_leaves(
        self,
        op: ReduceOp,
        leaves: list[Any],
        options: CommunicationOptions,
        may_share: bool,
    ) -> list[Array]:
        ops = self.cross_device_ops
        # A subclass may combine in another way, and is called through its public method.
        if type(ops) is CollectiveAllReduce:
            return ops.totals(op, leaves, options, self._shared_sums if may_share else None)
        pairs = [(leaf, None) for leaf in leaves]
        return [one.values[0] for one in ops.batch_reduce(op, pairs, options)]

    def sum_array(self, value: Any) -> Array:
        """Sum one array over all replicas. **Collective.**"""
        if self._is_plain and not isinstance(value, DistributedValues):
            # Straight to the communicator: of a small array, all else costs more than the sum.
            if self.placement.gpu is not None:
                with self.communicator.checking():
                    value = self.placement.operand(value)
            with self._sum:
                return self.communicator.allreduce(value, timeout=self.options.timeout_seconds)
        total: Array = self.reduce_shared(ReduceOp.SUM, value)
        return total

    def reduce_shared(self, op: ReduceOp, value: Nest) -> Nest:
        """Call :meth:`reduce_nest` after applying the rule for bare values. **Collective.**"""
        with self.communicator.checking():
            value = map_nest(lambda leaf: self.distributed(op, leaf), value)
        return self.reduce_nest(op, value, None)

    def reduce_axis(
        self,
        op: ReduceOp,
        value: Any,
        axis: int | Sequence[int],
        options: CommunicationOptions | None = None,
        where: str = "",
    ) -> Array:
        """Combine one value over all replicas and along `axis` of each. **Collective.**"""
        is_shared = self.num_local > 1 and not isinstance(value, DistributedValues)
        values = value.values if isinstance(value, DistributedValues) else (value,)
        if is_shared:
            values *= self.num_local  # it counts once for each replica
        with self.placement.current():
            return self._reduce_axis(op, values, axis, options, where)

    def _reduce_axis(
        self,
        op: ReduceOp,
        values: Sequence[Any],
        axis: int | Sequence[int],
        options: CommunicationOptions | None,
        where: str,
    ) -> Array:
        with self.communicator.checking():
            arrays = [self.placement.operand(value) for value in values]
            sums, counts = reduce_along(arrays, axis, op.value.lower())
        dtype = arrays[0].dtype
        # Ranks compare labels: another axis on one of them is a MismatchError, not a wrong result.
        label = f"{_LABELS[op]} along axis {axis}{where}"
        if op is ReduceOp.SUM:
            total: Array = self.reduce_nest(op, sums, options, label)
            return total.astype(summed_as(dtype), copy=False)
        # Lengths along the axis differ by replica: the divisor is a sum over all, too.
        total, count = self.reduce_nest(ReduceOp.SUM, (sums, counts), options, label)
        with np.errstate(divide="ignore", invalid="ignore"):  # the mean of no rows is NaN
            mean = np.true_divide(total, count)
        found = mean.astype(result_dtype("mean", dtype), copy=False)
        return np.asarray(found) if isinstance(found, np.generic) else found

    def reduce_axes(self, op: ReduceOp, value: Nest, axis: int | Sequence[int]) -> Nest:
        """Call :meth:`reduce_axis` for each leaf of a nest. **Collective.**"""
        leaves, structure = flatten(value) if is_nested(value) else ([value], None)
        where = "" if structure is None else f", of {text_of(structure)}"
        results = [self.reduce_axis(op, leaf, axis, where=where) for leaf in leaves]
        return results[0] if structure is None else structure.unflatten(results)

    def gather(self, value: Any, axis: int, options: CommunicationOptions | None = None) -> Array:
        """Concatenate one value over all replicas along `axis`. **Collective.**"""
        is_shared = self.num_local > 1 and not isinstance(value, DistributedValues)
        with self.communicator.checking(), self.placement.current():
            mine, axis = gather_local(value, axis, self.placement)
            if is_shared and self.is_uneven:
                raise UsageError(
                    f"gather of a bare value on a rank with {self.num_local} replicas, while"
                    " others have one; expected a value for each replica, e.g. a result of run()"
                )
        if is_shared or self.communicator.size == 1:
            return mine
        timeout = (options or self.options).timeout_seconds
        return self.communicator.allgather(mine, axis, timeout=timeout)

    def broadcast_first(self, value: Any) -> Array:
        """Return rank 0's value on every rank. **Collective.**"""
        with self.communicator.checking():
            mine = self.placement.operand(value)
        return self.communicator.bcast(mine, timeout=self.options.timeout_seconds)

    def any_rank(self, flag: bool) -> bool:
        """Tell whether `flag` is set on any rank. **Collective** if there are several."""
        if self.communicator.size == 1:
            return flag
        timeout = self.options.timeout_seconds
        return bool(self.communicator.allreduce(np.array(flag), "or", timeout=timeout))

    def copies(self, value: Array) -> Mirrored:
        """Return one array for each local replica, on its device, none of them shared."""
        return Mirrored(self.placement.copies(value))

    def copies_of_list(self, values: list[Array]) -> list[Any]:
        """Do :meth:`copies` for each value.

        With one local replica on the host, return the arrays themselves.
        """
        if self.placement.gpus == (None,):  # on the host, where a first copy is the array itself
            return [one if isinstance(one, np.ndarray) else as_array(one) for one in values]
        return [self.copies(value) for value in values]
