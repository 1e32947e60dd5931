"""Update variables outside of replicas: copy by copy, or by an optimizer's rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.strategy import context
from mpistrat.strategy.context import Mode
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.reduction.placement import ReplicaPlacement
from mpistrat.strategy.values import DistributedValues, Mirrored, regroup, select_replica
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.gpu import GpuVariable
from mpistrat.strategy.variables.gpu_updates import GpuUpdate, update_all
from mpistrat.strategy.variables.host_updates import RuleUpdate, copies, update_together
from mpistrat.system.critical_section import uninterrupted
from mpistrat.tables.rule import Rule
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy

__all__ = ["RuleUpdate", "Updating"]


class Updating:
    """The members of a `StrategyExtended` that change variables."""

    _strategy: Strategy
    _devices: tuple[str, ...]
    num_local_replicas: int
    placement: ReplicaPlacement

    @abstractmethod
    def require_cross_replica(self) -> None:
        """Raise inside of ``run``."""

    def update(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Call ``fn(copy, *args, **kwargs)`` for each copy of `var` on this rank. **Local.**

        Parameters
        ----------
        var
            A variable of this strategy.
        fn
            Changes the copy that it is given.
        args, kwargs
            Distributed values among them are replaced by those of the copy's replica.
        group
            False returns a tuple of the results, True merges them.
        """
        self.require_cross_replica()
        results = self.update_components(var, fn, tuple(args), dict(kwargs or {}))
        return regroup(results, Mirrored) if group else tuple(results)

    def update_components(
        self, var: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Do :meth:`update` in any context; return the list of results."""
        results = []
        components = var.values if isinstance(var, DistributedValues) else (var,)
        for index, component in enumerate(components):
            mine, named = select_replica(index, args), select_replica(index, kwargs)
            mode = Mode(self._strategy, None, updating=index)
            with context.enter(mode), self.placement.current_of(index):
                results.append(fn(component, *mine, **named))
        return results

    def changing(self, what: str) -> AbstractContextManager[None]:
        """Change variables in a block; ranks that have them in common wait for each other.

        Parameters
        ----------
        what
            Shown where ranks do different things.
        """
        del what  # here each rank has its own
        return nullcontext()

    def change_rows(
        self,
        var: Variable,
        kept: Sequence[Variable],
        change: Callable[..., None],
        gradient: Any,
    ) -> None:
        """Change `var`, and an optimizer's slots of it, by a function that works row by row.

        Parameters
        ----------
        var, kept
            Variables of this strategy, of one shape.
        change
            Called as ``change(memory, gradient, *memory of kept)`` for each copy, or for the rows
            of one that a rank sees to.
        gradient
            An array of their shape or `IndexedSlices`; a distributed one has one for each copy.
        """

        def change_copy(variable: Variable, gradient: Any, *kept: Variable) -> None:
            change(variable.live(), gradient, *(one.live() for one in kept))

        self.update(var, change_copy, (gradient, *kept))

    def count_step(self, iterations: Any) -> int:
        """Return how many steps an optimizer has done; count one, where several may do one."""
        return int(iterations.value())

    def apply_rule(
        self,
        rule: Rule,
        updates: Sequence[RuleUpdate],
        step: int,
        learning_rate: float,
        iterations: Any,
    ) -> None:
        """Update variables by an optimizer's rule.

        Parameters
        ----------
        rule
            The arithmetic.
        updates
            A variable, what the rule keeps of it by name, and its gradient, each.
        step, learning_rate
            As for ``Rule.apply``.
        iterations
            Set to `step`, unless :meth:`count_step` has counted.
        """
        # Ctrl-C between the variables and their count would leave a step that is half done.
        with self.changing(f"step {step} of an optimizer"), uninterrupted():
            on_gpus = [one for one in updates if _is_on_gpus(one)]
            on_host = [one for one in updates if not _is_on_gpus(one)] if on_gpus else updates
            self._update_on_host(rule, on_host, step, learning_rate)
            self._update_on_gpus(rule, on_gpus, step, learning_rate)
            # In the same block, so that ranks meet once for the variables and their count.
            iterations.assign(step)

    def _update_on_host(
        self, rule: Rule, updates: Sequence[RuleUpdate], step: int, learning_rate: float
    ) -> None:
        """Update variables in this process's memory together, and others one after the other."""
        self.require_cross_replica()

        def update_alone(update: RuleUpdate) -> None:
            variable, slots, gradient = update
            change = _changer(rule, list(slots), step, learning_rate)
            self.change_rows(variable, [*slots.values()], change, gradient)

        native = rule.native_rule(step, learning_rate)
        if native is not None:
            update_together(native, updates, update_alone)
            return
        for update in updates:
            update_alone(update)

    def _update_on_gpus(
        self, rule: Rule, updates: Sequence[RuleUpdate], step: int, learning_rate: float
    ) -> None:
        """Update variables that are on GPUs, all copies of a GPU together."""
        for index in range(self.num_local_replicas if updates else 0):
            mine = [
                GpuUpdate(
                    _copy_of(variable, index).live(),
                    {name: _copy_of(slot, index).live() for name, slot in slots.items()},
                    select_replica(index, gradient),
                )
                for variable, slots, gradient in updates
            ]
            with self.placement.current_of(index):
                update_all(rule, mine, step, learning_rate)

    def update_non_slot(
        self,
        colocate_with: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `fn` once for each local replica, for state that belongs to no variable."""
        self.require_cross_replica()
        del colocate_with  # all of a rank's replicas hold such state
        kwargs = dict(kwargs or {})
        results = []
        for index in range(self.num_local_replicas):
            mine, named = select_replica(index, tuple(args)), select_replica(index, kwargs)
            with self.placement.current_of(index):
                results.append(fn(*mine, **named))
        return regroup(results, Mirrored)

    def non_slot_devices(self, var_list: Sequence[Any]) -> tuple[str, ...]:
        """Return the devices for state that belongs to no variable of `var_list`."""
        del var_list
        return self._devices


def _copy_of(variable: Any, index: int) -> Any:
    return copies(variable)[index]


def _is_on_gpus(update: RuleUpdate) -> bool:
    """Tell whether all copies of a variable, and of what an optimizer keeps of it, are on GPUs."""
    variable, slots, _ = update
    if type(copies(variable)[0]) is Variable:  # the common case
        return False
    return all(
        isinstance(copy, GpuVariable)
        for one in (variable, *slots.values())
        for copy in copies(one)
    )


def _changer(rule: Rule, names: list[str], step: int, rate: float) -> Callable[..., None]:
    """Return what updates a variable's memory, given its gradient and the memory of its slots."""

    def change(value: Array, gradient: Any, *slots: Array) -> None:
        kept = dict(zip(names, slots, strict=True))
        if isinstance(gradient, IndexedSlices):
            # A rule updates a row once: values of a row that comes twice are added before.
            once = gradient.summed()
            rule.apply_rows(value, kept, once.indices, as_array(once.values), step, rate)
        else:
            rule.apply(value, kept, as_array(gradient), step, rate)

    return change
