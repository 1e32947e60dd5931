"""Conformance of variables: when their copies come together, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpistrat.strategy.base import Strategy
from mpistrat.strategy.context import (
    experimental_set_strategy,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from mpistrat.strategy.one_device import OneDeviceStrategy
from mpistrat.strategy.variables.base import Variable, variable_creator_scope
from mpistrat.strategy.variables.options import VariableAggregation, VariableSynchronization
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import StrategyConformance, equal, local_ids, rank_in

__all__ = ["VariablesConformance"]

_NONE, _SUM, _MEAN, _FIRST = VariableAggregation
_ON_READ = VariableSynchronization.ON_READ


def _id() -> int:
    replica = get_replica_context()
    assert replica is not None
    return replica.replica_id_in_sync_group


def _make(strategy: Strategy, value: Any, **options: Any) -> Any:
    with strategy.scope():
        return Variable(value, **options)


def _copies(strategy: Strategy, variable: Any) -> list[Any]:
    return [one.numpy() for one in strategy.experimental_local_results(variable)]


def _combined(aggregation: VariableAggregation, replicas: int) -> float:
    """Return what the values 1, 2, ... of the replicas are together."""
    total = replicas * (replicas + 1) / 2
    return {_SUM: total, _MEAN: total / replicas, _FIRST: 1.0}[aggregation]


class VariablesConformance(StrategyConformance):
    """Copies are equal at all times, or each replica's own until they are read together."""

    @pytest.mark.parametrize("aggregation", [_SUM, _MEAN, _FIRST])
    def test_mirrored_assign_in_replicas(
        self, layout: Layout, aggregation: VariableAggregation
    ) -> None:
        """Combine what the replicas assign, and set, add or subtract it everywhere."""
        with self.strategy(layout) as strategy:
            variable = _make(strategy, 0.0, aggregation=aggregation)
            one = _combined(aggregation, layout.replicas)
            for method, expected in (
                ("assign", one),
                ("assign_add", 2 * one),
                ("assign_sub", one),
            ):
                result = strategy.run(lambda m=method: getattr(variable, m)(_id() + 1.0))
                assert result is variable
                copies = [expected] * self.copies(layout)
                assert _copies(strategy, variable) == pytest.approx(copies)

    def test_mirrored_assign_in_replicas_needs_a_rule(self, layout: Layout) -> None:
        """Refuse it without an aggregation, and change nothing."""
        if not self.mirrors_variables and layout.replicas == 1:
            pytest.skip("a variable of one replica is a plain one, as in TensorFlow")
        with self.strategy(layout) as strategy:
            variable = _make(strategy, 5.0)
            for method in ("assign", "assign_add", "assign_sub"):
                with pytest.raises(ValueError, match=f"{method} to .* a replica .*aggregation="):
                    strategy.run(lambda m=method: getattr(variable, m)(1.0))
            assert _copies(strategy, variable) == [5.0] * self.copies(layout)

    def test_mirrored_mean_of_integers_does_not_fit(self, layout: Layout) -> None:
        """Refuse to round a mean, on every replica; a sum of integers fits."""
        with self.strategy(layout) as strategy:
            variable = _make(strategy, 5, aggregation=_MEAN)
            with pytest.raises(ValueError, match="dtype int64"):
                strategy.run(lambda: variable.assign(_id()))
            total = _make(strategy, 0, aggregation=_SUM)
            strategy.run(lambda: total.assign_add(_id()))
            equal(total, np.int64(sum(range(layout.replicas))))

    @pytest.mark.parametrize("aggregation", VariableAggregation)
    def test_on_read_is_local_in_replicas(
        self, layout: Layout, aggregation: VariableAggregation
    ) -> None:
        """Let each replica read and write its own copy; combine them when read across."""
        with self.strategy(layout) as strategy:
            variable = _make(strategy, 0.0, synchronization=_ON_READ, aggregation=aggregation)

            def replica_fn() -> float:
                variable.assign(10.0)
                variable.assign_add(_id() + 1.0)
                return float(variable.assign_sub(10.0))

            result = strategy.run(replica_fn)
            mine = tuple(i + 1.0 for i in local_ids(layout))
            assert strategy.experimental_local_results(result) == mine
            assert _copies(strategy, variable) == list(mine)
            if aggregation is _NONE:
                with pytest.raises(ValueError, match="has no value across replicas"):
                    variable.numpy()
                return
            expected = _combined(aggregation, layout.replicas)
            np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-15)
            with strategy.scope():
                np.testing.assert_allclose(variable + 1, expected + 1, rtol=1e-15)

    @pytest.mark.parametrize("aggregation", VariableAggregation)
    def test_on_read_assigned_across(
        self, layout: Layout, aggregation: VariableAggregation
    ) -> None:
        """Set copies that combine to the value; a sum cannot be added to, as in TensorFlow."""
        with self.strategy(layout) as strategy:
            variable = _make(strategy, 0.0, synchronization=_ON_READ, aggregation=aggregation)
            assert variable.assign(7) is variable
            share = 7 / layout.replicas if aggregation is _SUM else 7.0
            assert _copies(strategy, variable) == [share] * layout.devices
            if aggregation is _SUM:
                with pytest.raises(ValueError, match=r"assign_add .*has no meaning"):
                    variable.assign_add(1.0)
            else:
                variable.assign_add(1.0)
                assert _copies(strategy, variable) == [8.0] * layout.devices

    @pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int8, np.bool_])
    @pytest.mark.parametrize("total", [0, 1, 5, 100, -7])
    def test_on_read_shares_add_up(self, layout: Layout, dtype: Any, total: int) -> None:
        """Share integers out without losing any; floats are refused."""
        with self.strategy(layout) as strategy:
            variable = _make(
                strategy, np.zeros(2, dtype), synchronization=_ON_READ, aggregation=_SUM
            )
            if dtype is np.uint8 and total < 0:
                with pytest.raises(ValueError, match="out of bounds for uint8"):
                    variable.assign([total, total])
                return
            variable.assign([total, 0])
            equal(variable, np.array([total, 0]).astype(dtype))
            with pytest.raises(ValueError, match="float64"):
                variable.assign([0.5, 0.5])

    def test_mirrored_takes_what_an_on_read_variable_is_across(self, layout: Layout) -> None:
        """Read the other variable once, not copy by copy, so that the copies stay equal."""
        with self.strategy(layout) as strategy:
            counter = _make(strategy, 0.0, synchronization=_ON_READ, aggregation=_SUM)
            strategy.run(lambda: counter.assign(_id() + 1.0))
            variable = _make(strategy, 0.0)
            variable.assign(counter)
            expected = _combined(_SUM, layout.replicas)
            assert _copies(strategy, variable) == [expected] * self.copies(layout)

    def test_created_in_a_replica(self, layout: Layout) -> None:
        """Make one variable for all replicas: the first one's arguments and value count."""
        calls: list[None] = []

        def initial() -> Any:
            assert in_cross_replica_context()
            calls.append(None)
            return np.full(2, 1.0 + rank_in(layout))

        with self.strategy(layout) as strategy:

            def replica_fn() -> tuple[Variable, Variable]:
                return Variable(initial, name="f"), Variable(1.0 * _id(), name=f"v{_id()}")

            made, other = strategy.run(replica_fn)
            assert len(calls) == 1
            assert (made.name, other.name) == ("f:0", f"v{local_ids(layout)[0]}:0")
            for variable, value in ((made, np.ones(2)), (other, np.float64(0))):
                assert len(_copies(strategy, variable)) == self.copies(layout)
                for copy in _copies(strategy, variable):
                    equal(copy, value)

    def test_an_initial_value_that_raises_on_one_rank(self, layout: Layout) -> None:
        """Tell the other ranks at once, and go on."""

        def initial() -> float:
            if rank_in(layout) == layout.ranks - 1:
                raise ValueError("no initial value")
            return 1.0

        with self.strategy(layout) as strategy:
            with pytest.raises(ValueError, match="no initial value"):
                _make(strategy, initial)
            equal(_make(strategy, 1.0), 1.0)

    def test_copies_know_their_variable(self, layout: Layout) -> None:
        """Show an ON_READ variable with its copies' names, each of which knows its container."""
        with self.strategy(layout) as strategy:
            variable = _make(strategy, 2, name="n", synchronization=_ON_READ, aggregation=_SUM)
            copies = strategy.experimental_local_results(variable)
            assert all(copy.container is variable for copy in copies)
            rows = [f"  {i}: {copy!r}" for i, copy in enumerate(copies)]
            assert repr(variable) == "SyncOnReadVariable:{\n" + ",\n".join(rows) + "\n}"
            assert f"'n/replica_{layout.devices - 1}:0'" in rows[-1] or layout.devices == 1
            assert not variable.trainable
            assert (variable.synchronization, variable.aggregation) == (_ON_READ, _SUM)

    def test_options_that_exclude_each_other(self, layout: Layout) -> None:
        """Refuse trainable ON_READ variables, and variables that are never in step."""
        with self.strategy(layout) as strategy:
            for match, options in (
                ("not trainable", {"synchronization": _ON_READ, "trainable": True}),
                ("`NONE` variable sync", {"synchronization": VariableSynchronization.NONE}),
                ("expected a VariableAggregation", {"aggregation": "sum"}),
            ):
                with pytest.raises(ValueError, match=match):
                    _make(strategy, 1.0, **options)
            assert _make(strategy, 1.0).trainable
            assert not _make(strategy, 1.0, trainable=False).trainable

    def test_creators_nest(self, layout: Layout) -> None:
        """Ask the innermost creator first, inside and outside of the scope, as TensorFlow."""
        order = []

        def creator(name: str) -> Callable[..., Any]:
            def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
                order.append(name)
                return next_creator(**kwargs)

            return create

        with (
            self.strategy(layout) as strategy,
            variable_creator_scope(creator("outside")),
            strategy.scope(),
            variable_creator_scope(creator("b")),
            variable_creator_scope(creator("c")),
        ):
            assert strategy.extended.variable_created_in_scope(Variable(1.0))
        assert order == ["c", "b", "outside"]
        assert type(Variable(1.0)) is Variable

    def test_set_strategy(self, layout: Layout) -> None:
        """Stay current without a block, until another strategy is set; refuse it in a scope."""
        with self.strategy(layout) as strategy, OneDeviceStrategy("CPU:0") as other:
            try:
                experimental_set_strategy(strategy)
                assert get_strategy() is strategy
                assert in_cross_replica_context()
                assert strategy.extended.variable_created_in_scope(Variable(1.0))
                with strategy.scope():
                    assert get_strategy() is strategy
                with pytest.raises(RuntimeError, match="Mixing different"), other.scope():
                    pass
                experimental_set_strategy(other)
                assert type(Variable(1.0)) is Variable
            finally:
                experimental_set_strategy(None)
            assert not has_strategy()
            with strategy.scope(), pytest.raises(RuntimeError, match="leave it first"):
                experimental_set_strategy(strategy)
            with pytest.raises(RuntimeError, match="leave it first"):
                strategy.run(lambda: experimental_set_strategy(None))
