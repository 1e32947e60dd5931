"""Conformance of `StrategyExtended`: what libraries call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpistrat.errors import ContextError
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.context import get_replica_context, in_cross_replica_context
from mpistrat.strategy.one_device import OneDeviceStrategy
from mpistrat.strategy.values import DistributedValues, Mirrored, PerReplica
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.options import VariableAggregation, VariableSynchronization
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import (
    StrategyConformance,
    distribute,
    equal,
    local_ids,
    together,
)
from mpistrat.types import Array

__all__ = ["ExtendedConformance"]


def _row(replica: int) -> Array:
    return np.arange(3.0) + 10 * replica


def _variable(strategy: Strategy, value: Any, **options: Any) -> Any:
    with strategy.scope():
        return Variable(value, **options)


class ExtendedConformance(StrategyConformance):
    """Values go to destinations, and variables are changed copy by copy."""

    @pytest.mark.parametrize("op", ["SUM", "mean"])
    def test_reduce_to_copies_for_each_destination(self, layout: Layout, op: str) -> None:
        """Give a variable's or a value's replicas a copy each, and None or a name one."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, _row)
            variable = _variable(strategy, np.zeros(3))
            copies = len(strategy.experimental_local_results(variable))
            expected = sum(together(layout, _row))
            expected = expected if op == "SUM" else expected / layout.replicas
            for destinations, count in (
                (variable, copies),
                (value, layout.devices),
                (None, 1),
                ("CPU:0", 1),
            ):
                result = strategy.extended.reduce_to(op, value, destinations)
                assert isinstance(result, Mirrored)
                assert len(result.values) == count
                for one in result.values:
                    equal(one, expected)
                    np.add(one, 1.0, out=one)  # would show in the next if they shared memory

    def test_reduce_to_applies_the_rule_for_bare_values(self, layout: Layout) -> None:
        """Refuse the sum of a value that several local replicas share; its mean is itself."""
        with self.strategy(layout) as strategy:
            equal(strategy.extended.reduce_to("MEAN", np.ones(2), None), np.ones(2))
            if layout.devices > 1:
                with pytest.raises(ValueError, match="non-DistributedValues"):
                    strategy.extended.reduce_to("SUM", np.ones(2), None)
            else:
                total = strategy.extended.reduce_to("SUM", np.ones(2), None)
                equal(total, np.full(2, 1.0 * layout.ranks))

    def test_batch_reduce_to(self, layout: Layout) -> None:
        """Combine values of several dtypes and shapes at once, in their order."""
        ids = sum(range(layout.replicas))
        with self.strategy(layout) as strategy:
            rows, numbers = distribute(strategy, _row), distribute(strategy, np.int32)
            halves = distribute(strategy, np.float16)
            first, second, third = strategy.extended.batch_reduce_to(
                "SUM", [(rows, rows), (numbers, None), (halves, numbers)]
            )
            equal(first.values[-1], sum(together(layout, _row)))
            equal(second, np.int32(ids))
            equal(third.values[-1], np.float16(ids))
            assert [len(one.values) for one in (first, second, third)] == [
                layout.devices,
                1,
                layout.devices,
            ]
            assert strategy.extended.batch_reduce_to("SUM", []) == []

    def test_broadcast_to_makes_copies(self, layout: Layout) -> None:
        """Copy for each destination; the caller's array stays its own."""
        mine = np.arange(2.0)
        with self.strategy(layout) as strategy:
            value = distribute(strategy, _row)
            result = strategy.extended.broadcast_to(mine, value)
            assert len(result.values) == layout.devices
            for one in result.values:
                equal(one, np.arange(2.0))
                np.add(one, 1.0, out=one)
            assert len(strategy.extended.broadcast_to(mine, None).values) == 1
        equal(mine, np.arange(2.0))

    @pytest.mark.parametrize("group", [False, True])
    def test_update_changes_each_copy_with_its_values(self, layout: Layout, group: bool) -> None:
        """Call the function once a copy, across replicas, with that replica's arguments."""
        with self.strategy(layout) as strategy:
            variable = _variable(strategy, 100.0)
            copies = strategy.experimental_local_results(variable)

            def change(copy: Variable, delta: float, *, scale: float) -> float:
                assert in_cross_replica_context()
                assert any(copy is one for one in copies)
                return float(copy.assign_add(delta * scale))

            deltas, twice = distribute(strategy, float), {"scale": 2.0}
            result = strategy.extended.update(variable, change, (deltas,), twice, group=group)
            ids = local_ids(layout) if self.mirrors_variables else [0]
            expected = tuple(100.0 + 2 * i for i in ids)
            assert tuple(map(float, copies)) == expected
            if group and len(copies) > 1:
                assert isinstance(result, Mirrored)
                result = result.values
            assert result == (expected if len(copies) > 1 or not group else expected[0])

    def test_update_returns_the_variable_of_its_copies(self, layout: Layout) -> None:
        """Merge the copies that the function returns to the variable that they belong to."""
        with self.strategy(layout) as strategy:
            variable = _variable(strategy, np.zeros(2))
            result = strategy.extended.update(variable, lambda v: v.assign([1.0, 2.0]))
            assert strategy.extended.value_container(result) is variable
            equal(variable, np.array([1.0, 2.0]))

    def test_update_non_slot(self, layout: Layout) -> None:
        """Call the function for each local replica, with its own arguments."""
        with self.strategy(layout) as strategy:
            devices = strategy.extended.non_slot_devices([])
            assert devices == strategy.extended.worker_devices
            result = strategy.extended.update_non_slot(
                devices, lambda x, y: x + y, (distribute(strategy, float),), {"y": 0.5}
            )
            expected = tuple(i + 0.5 for i in local_ids(layout))
            assert strategy.experimental_local_results(result) == expected

    def test_devices(self, layout: Layout) -> None:
        """Name one device for each local replica; variables are where they are used."""
        with self.strategy(layout) as strategy:
            devices = strategy.extended.worker_devices
            assert len(devices) == len(set(devices)) == layout.devices
            assert len(strategy.extended.parameter_devices) == self.copies(layout)
            assert set(strategy.extended.parameter_devices) <= set(devices)
            result = strategy.run(lambda: get_replica_context().devices[0])  # type: ignore[union-attr]
            assert strategy.experimental_local_results(result) == devices

    def test_variable_created_in_scope(self, layout: Layout) -> None:
        """Know this strategy's variables and their copies, and no others."""
        with self.strategy(layout) as strategy:
            variable, plain = _variable(strategy, 1.0), Variable(1.0)
            foreign = _variable(OneDeviceStrategy("CPU:0"), 1.0)
            extended = strategy.extended
            assert extended.variable_created_in_scope(variable)
            for copy in strategy.experimental_local_results(variable):
                assert extended.variable_created_in_scope(copy)
                assert extended.value_container(copy) is variable
            assert not extended.variable_created_in_scope(foreign)
            assert not extended.variable_created_in_scope(plain)
            assert extended.value_container(plain) is plain

    def test_colocate_vars_with(self, layout: Layout) -> None:
        """Make variables as ever beside one of this strategy; refuse others, as TensorFlow."""
        with self.strategy(layout) as strategy, strategy.scope():
            variable = Variable(1.0)
            with strategy.extended.colocate_vars_with(variable):
                assert strategy.extended.variable_created_in_scope(Variable(2.0))
            plain = Variable.plain(initial_value=1.0)
            with (
                pytest.raises(ValueError, match="made in the scope of this strategy"),
                strategy.extended.colocate_vars_with(plain),
            ):
                pass

    def test_read_var(self, layout: Layout) -> None:
        """Read what all copies make together; the caller owns the result."""
        with self.strategy(layout) as strategy:
            variable = _variable(strategy, np.zeros(2))
            strategy.extended.read_var(variable)[:] = 9.0
            equal(strategy.extended.read_var(variable), np.zeros(2))
            if not self.mirrors_variables:
                return
            counter = _variable(
                strategy,
                0,
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.SUM,
            )
            strategy.run(lambda: counter.assign_add(2) and None)
            equal(strategy.extended.read_var(counter), np.int64(2 * layout.replicas))

    @pytest.mark.parametrize("args", [7, (7,), [7]])
    def test_call_for_each_replica_takes_a_bare_value(self, layout: Layout, args: Any) -> None:
        """Take one value in place of the tuple of arguments, distributed ones too."""
        with self.strategy(layout) as strategy:
            extended = strategy.extended
            assert extended.call_for_each_replica(lambda x: x, args) == 7
            ids = extended.call_for_each_replica(lambda x: x, distribute(strategy, int))
            assert strategy.experimental_local_results(ids) == tuple(local_ids(layout))
            assert isinstance(ids, PerReplica if layout.devices > 1 else int)
            assert extended.call_for_each_replica(lambda: "none", args=None) == "none"
            with pytest.raises(ValueError, match="expected a function"):
                extended.call_for_each_replica(7)  # type: ignore[arg-type]

    def test_not_in_a_replica(self, layout: Layout) -> None:
        """Refuse inside a replica what is for all of them."""
        with self.strategy(layout) as strategy:
            _refused(strategy, "requires being in cross-replica context", in_replica=True)

    def test_not_in_another_strategys_scope(self, layout: Layout) -> None:
        """Refuse the same in the scope of another strategy, and work again after it."""
        with self.strategy(layout) as strategy:
            with OneDeviceStrategy("CPU:0").scope():
                _refused(strategy, "Mixing different", in_replica=False)
            equal(strategy.extended.reduce_to("MEAN", np.ones(2), None), np.ones(2))


def _refused(strategy: Strategy, match: str, in_replica: bool) -> None:
    extended, variable = strategy.extended, Variable(1.0)
    value = DistributedValues([np.ones(2)] * extended.num_local_replicas)

    def try_all() -> None:
        for call in (
            lambda: extended.reduce_to("SUM", value, None),
            lambda: extended.batch_reduce_to("SUM", [(value, None)]),
            lambda: extended.broadcast_to(1.0, None),
            lambda: extended.update(variable, lambda v: v.assign(2.0)),
            lambda: extended.update_non_slot((), lambda: None),
            lambda: extended.call_for_each_replica(lambda: None),
        ):
            with pytest.raises(ContextError, match=match):
                call()

    if in_replica:
        strategy.run(try_all)
    else:
        try_all()
    equal(variable, 1.0)
