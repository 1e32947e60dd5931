"""The base of all optimizers: sum gradients over the replicas, then update every copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mpistrat import config
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.optimizers.gradients import (
    Trained,
    check_same_strategy,
    check_variable,
    parts_of,
    strategy_of,
    summed,
)
from mpistrat.optimizers.step_plan import StepPlan, plan_of, remember, separated
from mpistrat.strategy import context
from mpistrat.strategy.replicas.replica_context import check_equal
from mpistrat.strategy.variables import colocation
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.sharded.variable import ShardedVariable, whole_of
from mpistrat.tables.update_rules import AdagradRule, AdamRule, Rule, SGDRule

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy

__all__ = ["LearningRate", "Optimizer"]

LearningRate: TypeAlias = float | Callable[[int], float]

_FIRST_COMPARED, _COMPARED_EVERY = 8, 1024  # steps: also 16, 32, ...
_RATES_DIFFER = 1e-9
_OWN_RULES = {SGDRule, AdagradRule, AdamRule}  # others may write to gradients, or keep them


class Optimizer:
    """Base of the optimizers, which update variables with their gradients.

    Parameters
    ----------
    rule
        The arithmetic.
    learning_rate
        A number, or a function of the number of steps done; alike on all ranks.

    Notes
    -----
    What it keeps for a variable is made with it in `build`, or at the first step, in the scope of
    the variable's strategy. A checkpoint saves it, by the order of `build`; build an optimizer
    before it is restored.
    """

    def __init__(self, rule: Rule, learning_rate: LearningRate) -> None:
        self.rule = rule
        self.learning_rate = learning_rate
        self._iterations: Variable | None = None
        # In the order in which they came, by which a checkpoint knows them.
        self._trained: list[Trained] = []
        self._slots: list[dict[str, Any]] = []  # variables, as many parts as theirs have
        self._places: dict[int, int] = {}  # in both, by the variable's _key

    def __getstate__(self) -> dict[str, Any]:
        # `_places` is by id(), which is another one in the process where this arrives.
        return {name: value for name, value in vars(self).items() if name != "_places"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._places = {_key(variable): place for place, variable in enumerate(self._trained)}

    @property
    def learning_rate(self) -> LearningRate:
        """A number, or a function of the number of steps done; it may be set, on all ranks.

        Ranks compare it in step 8, 16, 32, ..., and in every 1024th.
        """
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: LearningRate) -> None:
        if not callable(value) and not isinstance(value, (int, float, np.number)):
            raise ArgumentTypeError(
                f"learning_rate={value!r}; expected a number or a function of the steps done"
            )
        self._learning_rate = value

    @property
    def iterations(self) -> int:
        """Number of steps so far."""
        return 0 if self._iterations is None else int(self._iterations.value())

    @property
    def variables(self) -> list[Any]:
        """The count of steps, then the slots of each variable; empty before `build`."""
        kept = [slot for slots in self._slots for slot in slots.values()]
        return [] if self._iterations is None else [self._iterations, *kept]

    def build(self, var_list: Sequence[Trained]) -> None:
        """Create the slots of variables that have none yet. **Collective.**

        Parameters
        ----------
        var_list
            Variables of one strategy, of floating types; the same on all ranks. A part of a
            `ShardedVariable` stands for the whole.
        """
        for variable in var_list:
            check_variable(variable)
        variables = [whole_of(variable) for variable in var_list]
        strategy = strategy_of(variables)
        with strategy.scope():
            if self._iterations is None:
                with colocation.on_host():  # each step reads it there
                    self._iterations = Variable(
                        np.int64(0), trainable=False, name=f"{type(self).__name__}/iteration"
                    )
            for variable in variables:
                if _key(variable) not in self._places:
                    self._slots.append(self._new_slots(variable))
                    self._places[_key(variable)] = len(self._trained)
                    self._trained.append(variable)  # so that its id stays its own

    def lacks_for_restore(self) -> tuple[tuple[str, ...], str] | None:
        """See `mpistrat.checkpoint.objects.saveable.Late`."""
        if self._trained:
            return None
        advice = (
            f"this {type(self).__name__} keeps nothing before its first step; call"
            " build(variables) on all ranks, with those that it trains, and then restore, or leave"
            " it out of the Checkpoint"
        )
        return ("_iterations", "_slots"), advice

    def _new_slots(self, variable: Trained) -> dict[str, Any]:
        initial = self.rule.initial_slots()
        if not isinstance(variable, ShardedVariable):
            return {slot: self._new_slot(variable, slot, value) for slot, value in initial.items()}
        return {  # as many parts, so that each is beside the part that it is kept of
            slot: ShardedVariable(
                [self._new_slot(part, slot, value) for part in variable.variables],
                f"{variable.name}/{slot}",
            )
            for slot, value in initial.items()
        }

    def _new_slot(self, variable: Variable, slot: str, value: float) -> Variable:
        dtype = self.rule.slot_dtype(variable.dtype)
        name = f"{variable.name.removesuffix(':0')}/{slot}"
        with context.get_strategy().extended.colocate_vars_with(variable):
            return Variable(np.full(variable.shape, value, dtype), trainable=False, name=name)

    def _slots_of(self, variable: Variable) -> dict[str, Variable]:
        """Return the slots of a variable, or of a part of one."""
        whole = whole_of(variable)
        slots = self._slots[self._places[_key(whole)]]
        if not isinstance(whole, ShardedVariable):
            return slots
        index = next(i for i, part in enumerate(whole.variables) if part is variable)
        return {name: slot.variables[index] for name, slot in slots.items()}

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Trained]],
        skip_gradients_aggregation: bool = False,
    ) -> None:
        """Make one step. **Collective** over all replicas.

        Parameters
        ----------
        grads_and_vars
            Pairs of a gradient, which is an array of the variable's shape, `IndexedSlices` of
            rows, or None, which leaves the variable alone; and a variable, plain or distributed, a
            `ShardedVariable` or one of its parts. The same variables in the same order on all
            replicas, with the same kind of gradient.
        skip_gradients_aggregation
            Inside of `run`: take the gradients as they are, equal on all replicas. By default
            they are summed over them; divide by the global batch beforehand. Outside of `run`
            they are taken as they are.

        Notes
        -----
        Ctrl-C is deferred until the variables and the count of steps have both changed. On
        parameter servers the step is counted first, so that an interrupted step may be counted
        without being applied.

        References
        ----------
        tf.keras.optimizers.Optimizer.apply_gradients.
        """
        gradients, given = separated(grads_and_vars)
        if not given:
            raise UsageError("apply_gradients: no variable has a gradient; expected at least one")
        plan = plan_of(self, given)
        gradients = plan.checked(gradients)
        strategy, replica = plan.strategy, context.get_replica_context()
        # Outside of all scopes the replica is the default strategy's, and no part of the
        # variables'.
        if replica is None or (not context.has_strategy() and strategy is not replica.strategy):
            with strategy.scope():
                self._step(strategy, gradients, plan)
            return
        check_same_strategy(replica, strategy)
        what = plan.what
        if not skip_gradients_aggregation and replica.strategy.extended.num_replicas > 1:
            is_ours = type(self.rule) in _OWN_RULES
            gradients = summed(replica, gradients, may_share=is_ours, what=what)

        def step(strategy: Strategy, gradients: list[Any], what: str) -> None:
            check_equal("variables, or orders of them", what)
            self._step(strategy, gradients, plan)

        # Each replica has made a `step` of its own: merge_call takes functions of the same code
        # for one.
        replica.merge_call(step, args=(gradients, what))

    def _step(self, strategy: Strategy, gradients: list[Any], plan: StepPlan) -> None:
        slots = self._slots_for(plan)
        number = strategy.extended.count_step(self._iterations)
        rate = self._learning_rate
        rate = _as_rate(rate(number) if callable(rate) else rate, number)
        self._compare(strategy, number + 1, rate)
        with strategy.extended.placement.current():  # where sums of gradients are
            updates = self._updates(plan.variables, slots, gradients)
        strategy.extended.apply_rule(self.rule, updates, number + 1, rate, self._iterations)

    def _slots_for(self, plan: StepPlan) -> list[Mapping[str, Any] | None]:
        """Return the slots of a plan, which are made if there are none yet."""
        if plan.slots is None:
            variables = plan.variables
            if self._iterations is None or any(_key(v) not in self._places for v in variables):
                self.build(variables)
            plan.slots = [
                None if isinstance(variable, ShardedVariable) else self._slots_of(variable)
                for variable in variables
            ]
            remember(self, plan)
        return plan.slots

    def _updates(
        self, variables: list[Trained], slots: Sequence[Any], gradients: list[Any]
    ) -> list[tuple[Any, Any, Any]]:
        whole = list(zip(variables, slots, gradients, strict=True))
        if None not in slots:
            return whole
        return [
            (part, self._slots_of(part) if some is None else some, share)
            for variable, some, gradient in whole
            for share, part in parts_of(gradient, variable)
        ]

    def _compare(self, strategy: Strategy, step: int, rate: float) -> None:
        """Raise on all ranks, in some steps, if their rates differ."""
        extended = strategy.extended
        if not (extended.mirrors_variables and extended.communicator.size > 1):
            return
        if not (_is_compared(step) and config.checks()):
            return
        with extended.communicator.labelled(f"the learning rate of step {step}"):
            rates = extended.communicator.allgather(np.array([rate])).tolist()
        # Other processors compute other last bits of a function of the steps.
        if not np.allclose(rates, rates[0], rtol=_RATES_DIFFER, atol=0, equal_nan=True):
            raise UsageError(
                f"the learning rate of {type(self).__name__} in step {step} is {rates}, by rank,"
                " so their variables are not the same any more; expected one rate on all ranks:"
                " set it from what they all know, such as a loss that was reduced"
            )


def _as_rate(value: Any, step: int) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"the learning rate of step {step} is {value!r}; expected a number: what does its"
            " function return?"
        ) from error


def _is_compared(step: int) -> bool:
    return (step >= _FIRST_COMPARED and step & (step - 1) == 0) or step % _COMPARED_EVERY == 0


def _key(variable: Trained) -> int:
    """Return the identity of a variable: a container may be sent to a worker more than once."""
    whole = whole_of(variable)
    return id(whole.variables[0] if isinstance(whole, ShardedVariable) else whole)
