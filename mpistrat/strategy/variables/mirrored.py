"""Variables with one copy for each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.strategy import context
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.replicas.replica_context import check_equal
from mpistrat.strategy.values import Delegate, DistributedValues, local_index
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.options import VariableAggregation, check_mean, reduce_op_of
from mpistrat.strategy.variables.scatter import check_slices
from mpistrat.types import Array, ArrayLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from mpistrat.strategy.base import Strategy

__all__ = ["DistributedVariable", "MirroredVariable", "SyncOnReadVariable"]


class DistributedVariable(DistributedValues, Variable):
    """One component for each replica of this rank, acting as one variable.

    It knows its strategy, so it can be read and written outside of the scope too.

    Attributes
    ----------
    number
        How many variables its strategy made before it; ranks tell variables by it.
    """

    is_variable = True
    __hash__ = object.__hash__

    def __init__(self, strategy: Strategy, components: Sequence[Variable]) -> None:
        DistributedValues.__init__(self, components)
        self.distribute_strategy = strategy
        self.number = next(strategy.extended.variable_numbers)
        first = components[0]
        self._name, self._trainable = first.name, first.trainable
        self._synchronization, self._aggregation = first.synchronization, first.aggregation
        for component in components:
            # A replica function gets a copy; regroup() and optimizers find the whole by this.
            component.container = self

    @cached_property
    def memory_on_host(self) -> tuple[Array, ...] | None:
        """As of `Variable`; the components, and their memory, stay the same ones."""
        each = [component.memory_on_host for component in self._values]
        return None if None in each else tuple(memory for (memory,) in each)

    @property
    def _primary(self) -> Variable:
        variable: Variable = self._values[0]
        return variable

    @property
    def __cupy_get_ndarray__(self) -> Callable[[], Array]:
        """As of `GpuVariable`; there is none where the copies are on the host."""
        if not hasattr(self._primary, "__cupy_get_ndarray__"):
            raise AttributeError("the copies are on the host")
        return lambda: self._read().copy()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of each copy."""
        return self._primary.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of each copy."""
        return self._primary.dtype

    def in_words(self) -> str:
        """Return what all ranks call this variable, for labels of calls; names may differ."""
        return f"variable {self.number}"

    def _component(self) -> Variable:
        """Return the copy of the replica that runs or is updated."""
        variable: Variable = self._values[local_index()]
        return variable

    def live(self) -> Array:
        """Return the memory of the copy that is updated, or of the replica that runs."""
        if not _is_local():
            raise UsageError(
                f"live() of {self._name!r}, which has a copy on each replica; call it in the"
                " function that strategy.extended.update calls for each"
            )
        return self._component().live()

    def __repr__(self) -> str:
        return self._show(repr)

    __str__ = __repr__

    def _assign(self, method: str, value: ArrayLike) -> Variable:
        raise NotImplementedError

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> Self:
        if _is_local():
            self._scatter_locally(method, sparse_delta)
        else:  # checked before the first copy is changed
            slices = check_slices(self, method, sparse_delta)
            self.distribute_strategy.extended.update_components(self, _call(method), (slices,), {})
        return self

    def _scatter_locally(self, method: str, sparse_delta: IndexedSlices) -> None:
        getattr(self._component(), method)(sparse_delta)


class MirroredVariable(DistributedVariable):
    """Copies that are equal at all times.

    Across replicas an assignment sets every copy on this rank (all ranks make the same one).
    In a replica, the values of all replicas are first combined by `aggregation`; without one
    that is an error.
    """

    def _read(self) -> Array:
        return self._component()._read()

    def _assign(self, method: str, value: ArrayLike) -> Variable:
        mode = context.current()
        if mode is not None and mode.updating is not None:  # in extended.update: this copy
            getattr(self._component(), method)(value)
        elif mode is None or mode.replica is None:  # all ranks make this call: nothing is sent
            if isinstance(value, Delegate):  # as it reads here, not in each copy
                value = value._read()
            self.distribute_strategy.extended.update_components(self, _call(method), (value,), {})
        else:
            if self._aggregation is VariableAggregation.NONE:
                raise UsageError(
                    f"{method} to mirrored variable {self._name!r} in a replica needs a rule for"
                    " the replicas' values; pass aggregation=VariableAggregation.MEAN (or SUM,"
                    " ONLY_FIRST_REPLICA) to Variable, or assign across replicas"
                )
            # Each replica has a value of its own: they become one in a merge call.
            mode.replica.merge_call(_assign_merged, args=(self, method, value))
        return self

    def _scatter_locally(self, method: str, sparse_delta: IndexedSlices) -> None:
        mode = context.current()
        if mode is not None and mode.updating is None:
            raise UsageError(
                f"{method} to mirrored variable {self._name!r} in a replica would make its copies"
                " differ; gather the rows with all_gather and scatter them in merge_call"
            )
        super()._scatter_locally(method, sparse_delta)


def _is_local() -> bool:
    """Tell whether code runs for one replica: inside it, or updating its copy."""
    mode = context.current()
    return mode is not None and (mode.replica is not None or mode.updating is not None)


def _call(method: str) -> Callable[..., Any]:
    return lambda component, value: getattr(component, method)(value)


def _assign_merged(
    strategy: Strategy, variable: MirroredVariable, method: str, value: Any
) -> None:
    """Combine the replicas' values and assign the result to all copies."""
    # merge_call compares functions only: the replicas may have named unequal variables.
    check_equal("variables to assign to", variable)
    check_equal("ways to assign", method)
    extended, label = strategy.extended, f"{method} of {variable.in_words()}"
    if variable.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        first = value.values[0] if isinstance(value, DistributedValues) else value
        with extended.combiner.labelled_as(label):
            combined = extended.combiner.broadcast_first(first)
    else:
        op = reduce_op_of(variable.aggregation)
        combiner = extended.combiner
        with combiner.communicator.checking():
            check_mean(variable)
        combined = combiner.reduce_one(op, combiner.of_each_replica(value), label)
    extended.update_components(variable, _call(method), (combined,), {})


class SyncOnReadVariable(DistributedVariable):
    """Copies that each replica writes for itself, combined when read across replicas.

    Reading across replicas is **Collective**. Assigning across replicas sets copies that
    combine to the value: with SUM each gets an equal share.
    """

    def _read(self) -> Array:
        if _is_local():
            return self._component()._read()
        return self._combined()

    def _combined(self) -> Array:
        extended = self.distribute_strategy.extended
        if self._aggregation is VariableAggregation.NONE:
            raise UsageError(
                f"ON_READ variable {self._name!r} with aggregation NONE has no value across"
                " replicas; pass aggregation= to Variable, or read it in a replica"
            )
        values = DistributedValues([component._read() for component in self._values])
        label = f"value of {self.in_words()}"
        if self._aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            with extended.combiner.labelled_as(label):
                first: Array = extended.combiner.broadcast_first(values.values[0])
            return first
        op = reduce_op_of(self._aggregation)
        combined: Array = extended.combiner.reduce_one(op, values, label)
        return combined

    def _assign(self, method: str, value: ArrayLike) -> Variable:
        if _is_local():
            getattr(self._component(), method)(value)
            return self
        if self._aggregation is VariableAggregation.SUM:
            if method != "assign":
                raise UsageError(
                    f"{method} to ON_READ variable {self._name!r} with aggregation SUM across"
                    " replicas has no meaning; assign a total, or add in a replica"
                )
            value = self._shares(value)
        self.distribute_strategy.extended.update_components(self, _call(method), (value,), {})
        return self

    def _shares(self, total: ArrayLike) -> DistributedValues:
        """Return values for the copies that add up to `total`; replica 0 gets the remainder."""
        extended = self.distribute_strategy.extended
        with extended.placement.current():
            return self._cut(self._primary._taken(total, "assign"))

    def _cut(self, array: Array) -> DistributedValues:
        extended = self.distribute_strategy.extended
        count = extended.num_replicas
        first = share = array
        if array.dtype.kind in "iu":
            share = array // count
            first = array - share * (count - 1)
        elif array.dtype.kind != "b":  # the sum of bool is the logical or: all may have it
            first = share = array / count
        ids = range(extended.first_replica, extended.first_replica + len(self._values))
        return DistributedValues([share if replica else first for replica in ids])
