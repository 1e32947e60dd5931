"""`CentralVariable`: one array for all replicas, in memory that the ranks of a node share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpistrat.collectives.arrays.conversion import as_operand
from mpistrat.errors import ContextError, UsageError
from mpistrat.strategy import context
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.values import Delegate, DistributedValues
from mpistrat.strategy.variables import creation
from mpistrat.strategy.variables.base import CHANGES, Variable
from mpistrat.strategy.variables.options import VariableAggregation, check_mean, reduce_op_of
from mpistrat.strategy.variables.scatter import check_slices, scatter
from mpistrat.types import Array, ArrayLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from mpistrat.strategy.base import Strategy

__all__ = ["CentralVariable"]


class CentralVariable(Variable):
    """One array that all replicas read in place, changed by all ranks together.

    Across replicas an assignment takes rank 0's value. In a replica, the values of all replicas
    are first combined by `aggregation`, and applied once; without one that is an error, unless
    there is one replica only.

    Parameters
    ----------
    strategy
        The strategy that made it.
    memory
        The array, which all ranks have mapped.
    number
        Its index among the strategy's variables, equal on all ranks.
    options
        The arguments of `Variable`, checked.

    Notes
    -----
    Every assignment is **Collective**: no rank changes the memory before all ranks are in the
    call, and none returns from it before all is written. So a rank that reads between its calls
    never sees a value that is half written; only a thread beside the one that makes the calls
    could, and must not read meanwhile.
    """

    __hash__ = object.__hash__

    def __init__(
        self, strategy: Strategy, memory: Array, number: int, options: dict[str, Any]
    ) -> None:
        self.distribute_strategy = strategy
        self.number = number
        self._value = memory
        self._set_options(**options)

    def in_words(self) -> str:
        """Return what all ranks call this variable, for labels of calls; names may differ."""
        return f"variable {self.number}"

    def live(self) -> Array:
        """Return the memory itself, in the function that ``extended.update`` calls."""
        mode = context.current()
        if mode is None or mode.updating is None:
            raise UsageError(
                f"live() of {self._name!r}, which all ranks read in place; call it in the function"
                " that strategy.extended.update calls"
            )
        return self._value

    def memory(self) -> Array:
        """Return the memory itself; write to it only within ``extended.changing``."""
        return self._value

    def _assign(self, method: str, value: ArrayLike) -> Variable:
        mode = context.current()
        if mode is not None and mode.updating is not None:
            # In extended.update: on rank 0 alone, between its barriers.
            super()._assign(method, value)
        elif mode is None or mode.replica is None:
            self._assign_across(method, value)
        else:
            if mode.strategy is not self.distribute_strategy:
                raise ContextError(
                    f"{method} to variable {self._name!r} of {self.distribute_strategy} in a"
                    f" replica of {mode.strategy}; assign in the strategy's own run, or outside"
                )
            self._check_rule(method)
            mode.replica.merge_call(_assign_merged, args=(self, method, value))
        return self

    def _check_rule(self, method: str) -> None:
        count = self.distribute_strategy.num_replicas_in_sync
        if self._aggregation is VariableAggregation.NONE and count > 1:
            raise UsageError(
                f"{method} to central variable {self._name!r} in a replica needs a rule for the"
                " replicas' values; pass aggregation=VariableAggregation.MEAN (or SUM,"
                " ONLY_FIRST_REPLICA) to Variable, or assign across replicas"
            )

    def _assign_across(self, method: str, value: Any) -> None:
        """Apply rank 0's value. **Collective.**"""
        extended = self.distribute_strategy.extended
        with extended.communicator.checking():
            if isinstance(value, DistributedValues) and not isinstance(value, Variable):
                value = value.values[0]
            array = self._fitting(value._read() if isinstance(value, Delegate) else value, method)
        with extended.changing(f"{method} to {self.title}"):
            if extended.communicator.rank == 0:
                CHANGES[method](self._value, array)

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> Self:
        mode = context.current()
        if mode is not None and mode.updating is not None:
            return super()._scatter(method, sparse_delta)
        extended = self.distribute_strategy.extended
        if mode is not None and mode.replica is not None and extended.num_replicas > 1:
            raise UsageError(
                f"{method} to central variable {self._name!r} in a replica has no rule for the"
                " replicas' rows; gather the rows with all_gather and scatter them in merge_call"
            )
        with extended.communicator.checking():
            slices = check_slices(self, method, sparse_delta).on_host()
        with extended.changing(f"{method} to {self.title}"):
            if extended.communicator.rank == 0:
                scatter(self._value, method, slices)
        return self

    def _assign_combined(self, method: str, value: Any) -> None:
        """Apply the sum or mean over all replicas, each rank its share. **Collective.**"""
        extended = self.distribute_strategy.extended
        what = f"{method} to {self.title}"
        with extended.communicator.checking():
            check_mean(self)
            mine = extended.combiner.of_each_replica(value)
            for one in mine.values if isinstance(mine, DistributedValues) else (mine,):
                self._check_shape(as_operand(one), method)
        op = reduce_op_of(self._aggregation)
        share = extended.combined_share(op, mine, what)
        with extended.communicator.checking():
            fitting = self._taken(share, method)
        # All ranks are here, since each share combines values of all. But they have to agree
        # that all shares fit, where that depends on the values.
        has_met = share.itemsize <= fitting.itemsize or fitting.dtype.kind not in "iu"
        with extended.changing(what, has_met):
            CHANGES[method](extended.share_of(self._value.reshape(-1)), fitting)

    @property
    def title(self) -> str:
        """Its name in errors that all ranks raise; `name` may differ between ranks."""
        return f"central variable {self.number}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        """Return a variable of its own, of the same strategy. **Collective.**"""
        options = {
            "name": self._name.removesuffix(":0"),
            "trainable": self._trainable,
            "synchronization": self._synchronization,
            "aggregation": self._aggregation,
        }
        value = self.read_value()
        made = creation.create(self.distribute_strategy, initial_value=value, **options)
        memo[id(self)] = made
        return made


def _assign_merged(strategy: Strategy, variable: CentralVariable, method: str, value: Any) -> None:
    """Assign what the replicas handed over, as the variable's aggregation says."""
    del strategy
    if variable.aggregation in (VariableAggregation.SUM, VariableAggregation.MEAN):
        variable._assign_combined(method, value)
    else:
        variable._assign_across(method, value)
