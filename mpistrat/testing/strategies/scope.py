"""Conformance of ``Strategy.scope`` and of the variables made in it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpistrat.strategy.context import (
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from mpistrat.strategy.one_device import OneDeviceStrategy
from mpistrat.strategy.values import DistributedValues, PerReplica
from mpistrat.strategy.variables.base import Variable, variable_creator_scope
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import (
    StrategyConformance,
    distribute,
    equal,
    local_ids,
    rank_in,
)

__all__ = ["ScopeConformance"]


def _copies(variable: Any) -> tuple[Any, ...]:
    """Return the copies of a variable on this rank."""
    return variable.values if isinstance(variable, DistributedValues) else (variable,)


class ScopeConformance(StrategyConformance):
    """A scope makes its strategy current, and distributes the variables made in it."""

    def test_b01_current_inside_and_default_outside(self, layout: Layout) -> None:
        """Install the strategy for the length of the block, and hand it to ``as``."""
        outside = get_strategy()
        assert outside.num_replicas_in_sync == 1
        with self.strategy(layout) as strategy:
            assert strategy.num_replicas_in_sync == layout.replicas
            assert not has_strategy()
            with strategy.scope() as entered:
                assert entered is strategy
                assert get_strategy() is strategy
                assert has_strategy()
            assert get_strategy() is outside

    def test_b01_an_exception_leaves_the_scope(self, layout: Layout) -> None:
        """Put back what was current before when the block raises."""
        with self.strategy(layout) as strategy:
            outside = get_strategy()
            with pytest.raises(KeyError), strategy.scope():
                raise KeyError("x")
            assert get_strategy() is outside

    def test_b01_scopes_of_one_strategy_nest(self, layout: Layout) -> None:
        """Enter the same strategy's scope again inside it."""
        with self.strategy(layout) as strategy, strategy.scope():
            with strategy.scope():
                assert get_strategy() is strategy
            assert get_strategy() is strategy

    def test_b01_scopes_of_two_strategies_do_not(self, layout: Layout) -> None:
        """Refuse another strategy's scope, and its run and reduce."""
        with self.strategy(layout) as strategy, strategy.scope():
            other = OneDeviceStrategy("CPU:0")
            mixing = "Mixing different tf.distribute.Strategy objects"
            with pytest.raises(RuntimeError, match=mixing), other.scope():
                pass
            with pytest.raises(RuntimeError, match=mixing):
                other.run(lambda: None)
            with pytest.raises(RuntimeError, match=mixing):
                other.reduce("SUM", 1.0, axis=None)

    def test_b02_inside_is_the_cross_replica_context(self, layout: Layout) -> None:
        """Be across the replicas in a scope, and in the default replica outside of all."""
        with self.strategy(layout) as strategy:
            assert not in_cross_replica_context()
            assert get_replica_context() is not None
            with strategy.scope():
                assert in_cross_replica_context()
                assert get_replica_context() is None

    def test_b03_creation_is_intercepted(self, layout: Layout) -> None:
        """Make the strategy's own kind of variable, after the creators that the user added."""
        names = []

        def creator(next_creator: Callable[..., Variable], **kwargs: Any) -> Variable:
            names.append(kwargs.get("name"))
            return next_creator(**{**kwargs, "name": "renamed"})

        with self.strategy(layout) as strategy:
            with strategy.scope(), variable_creator_scope(creator):
                variable = Variable(2.0, name="w")
            assert names == ["w"]
            assert variable.name == "renamed:0"
            if self.mirrors_variables:
                assert strategy.extended.variable_created_in_scope(variable)
                assert isinstance(variable, DistributedValues)

    def test_b04_a_copy_on_each_replica(self, layout: Layout) -> None:
        """Keep as many copies as replicas, none of which shares memory with another."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable(np.arange(3.0))
            copies = _copies(variable)
            assert len(copies) == self.copies(layout)
            for one in copies:
                equal(one, np.arange(3.0))
            for first, second in itertools.pairwise(copies):
                assert not np.shares_memory(first.value(), second.value())

    @pytest.mark.parametrize("is_function", [False, True])
    def test_b04_copies_start_equal(self, layout: Layout, is_function: bool) -> None:
        """Give every replica the initial value of rank 0, though the ranks' differ."""
        value = np.full(2, 1.0 + rank_in(layout))
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable((lambda: value) if is_function else value)
            for one in strategy.experimental_local_results(variable):
                equal(one, np.ones(2))

    def test_b04_assignments_reach_all_copies(self, layout: Layout) -> None:
        """Set, add to and subtract from every copy when assigned across the replicas."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable(np.zeros(2))
                variable.assign([3.0, 4.0])
                variable.assign_add(np.ones(2))
                variable.assign_sub([0.5, 0.5])
            for one in strategy.experimental_local_results(variable):
                equal(one, np.array([3.5, 4.5]))

    def test_b05_outside_nothing_is_distributed(self, layout: Layout) -> None:
        """Make a plain variable outside of the scope."""
        with self.strategy(layout) as strategy:
            variable = Variable(1.0)
            assert type(variable) is Variable
            assert variable.name == "Variable:0"
            assert not strategy.extended.variable_created_in_scope(variable)

    @pytest.mark.parametrize("name", [None, "w"])
    def test_b06_names_of_copies(self, layout: Layout, name: str | None) -> None:
        """Name the first copy as the variable, the others by their place on the rank."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable(1.0, name=name)
            names = [one.name for one in _copies(variable)]
            stem = name or "Variable"
            others = [f"{stem}/replica_{i}:0" for i in range(1, len(names))]
            assert names == [f"{stem}:0", *others]
            assert variable.name == f"{stem}:0"

    def test_b07_repr(self, layout: Layout) -> None:
        """Show a variable and distributed values with one line for each copy."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable(1.5)
            rows = [f"  {i}: {one!r}" for i, one in enumerate(_copies(variable))]
            if self.mirrors_variables:
                assert repr(variable) == "MirroredVariable:{\n" + ",\n".join(rows) + "\n}"
            assert all("shape=()" in row and "numpy=1.5" in row for row in rows)
            value = distribute(strategy, lambda i: 10 * i)
            assert isinstance(value, PerReplica)
            rows = [f"  {place}: {10 * i}" for place, i in enumerate(local_ids(layout))]
            assert repr(value) == "PerReplica:{\n" + ",\n".join(rows) + "\n}"

    def test_b08_variables_work_outside(self, layout: Layout) -> None:
        """Read and write a distributed variable without entering the scope again."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable(np.arange(2.0))
            variable.assign_add([1.0, 1.0])
            equal(variable.numpy(), np.array([1.0, 2.0]))
            equal(variable * 2, np.array([2.0, 4.0]))
            result = strategy.run(lambda v: v + 0.5, args=(variable,))
            for one in strategy.experimental_local_results(result):
                equal(one, np.array([1.5, 2.5]))

    def test_b09_run_and_reduce_enter_by_themselves(self, layout: Layout) -> None:
        """Be current inside run; variables made there are the strategy's."""
        with self.strategy(layout) as strategy:

            def replica_fn() -> Variable:
                assert get_strategy() is strategy
                return Variable(3.0)

            result = strategy.run(replica_fn)
            assert len(strategy.experimental_local_results(result)) == self.copies(layout)
            if self.mirrors_variables:
                assert strategy.extended.variable_created_in_scope(result)
            total = strategy.reduce("SUM", strategy.run(lambda: np.ones(2)), axis=None)
            equal(total, np.full(2, 1.0 * layout.replicas))
            assert not has_strategy()

    def test_b11_datasets_in_or_out(self, layout: Layout) -> None:
        """Make and walk data sets inside the scope or outside, with the same result."""
        rows = np.arange(2.0 * layout.replicas)
        with self.strategy(layout) as strategy:

            def walk() -> list[Any]:
                data = strategy.experimental_distribute_dataset([rows, rows + 1])
                return [strategy.experimental_local_results(step) for step in data]

            outside = walk()
            with strategy.scope():
                inside = walk()
            equal(inside, outside)

    def test_b12_other_threads_are_not_in_the_scope(self, layout: Layout) -> None:
        """Hold for the thread that entered only."""
        seen = []
        with self.strategy(layout) as strategy, strategy.scope():
            thread = threading.Thread(target=lambda: seen.append((get_strategy(), Variable(1.0))))
            thread.start()
            thread.join()
            ((current, variable),) = seen
            assert current is not strategy
            assert type(variable) is Variable

    def test_b13_a_scope_does_not_distribute_computation(self, layout: Layout) -> None:
        """Run plain code once, on this rank, as written."""
        calls = []
        with self.strategy(layout) as strategy, strategy.scope():
            calls.append(np.ones(2) * 2)
        assert len(calls) == 1
        equal(calls[0], np.full(2, 2.0))
