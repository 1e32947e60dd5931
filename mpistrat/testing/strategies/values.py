"""Conformance of the methods that make distributed values and take them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpistrat.strategy.context import get_replica_context
from mpistrat.strategy.input.input_context import ValueContext
from mpistrat.strategy.values import DistributedValues, PerReplica
from mpistrat.strategy.variables.base import Variable
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import StrategyConformance, distribute, equal, local_ids

__all__ = ["ValuesConformance"]


class ValuesConformance(StrategyConformance):
    """One value for each replica of this rank, in replica order."""

    def test_b50_called_once_a_local_replica(self, layout: Layout) -> None:
        """Call the function with a ValueContext for each replica of this rank only."""
        seen = []

        def value_fn(context: ValueContext) -> int:
            assert isinstance(context, ValueContext)
            seen.append((context.replica_id_in_sync_group, context.num_replicas_in_sync))
            return 0

        with self.strategy(layout) as strategy:
            strategy.experimental_distribute_values_from_function(value_fn)
        assert seen == [(i, layout.replicas) for i in local_ids(layout)]

    def test_b50_values_are_kept_as_they_are(self, layout: Layout) -> None:
        """Return the very objects that the function returned: arrays, numbers, NumPy scalars."""
        made: list[Any] = []

        def make(replica: int) -> Any:
            made.append([np.full(2, replica), float(replica), np.float32(replica)][replica % 3])
            return made[-1]

        with self.strategy(layout) as strategy:
            value = distribute(strategy, make)
            assert isinstance(value, DistributedValues)
            assert isinstance(value, PerReplica)
            results = strategy.experimental_local_results(value)
            assert len(results) == layout.devices
            assert all(one is other for one, other in zip(results, made, strict=True))

    def test_b50_go_into_run_and_reduce(self, layout: Layout) -> None:
        """Accept what was made wherever distributed values are wanted."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, lambda i: np.float64(i + 1))
            result = strategy.run(lambda x: x * 2, args=(value,))
            equal(
                strategy.reduce("SUM", result, axis=None),
                1.0 * layout.replicas * (layout.replicas + 1),
            )

    def test_b50_not_in_a_replica(self, layout: Layout) -> None:
        """Refuse to make values for all replicas from inside one."""
        with self.strategy(layout) as strategy:

            def replica_fn() -> None:
                with pytest.raises(RuntimeError, match="cross-replica context"):
                    distribute(strategy, int)

            strategy.run(replica_fn)

    def test_b51_tuple_in_replica_order(self, layout: Layout) -> None:
        """Return this rank's values only, as a tuple."""

        def replica_fn() -> int:
            replica = get_replica_context()
            assert replica is not None
            return 1000 + replica.replica_id_in_sync_group

        with self.strategy(layout) as strategy:
            expected = tuple(1000 + i for i in local_ids(layout))
            made = distribute(strategy, lambda i: 1000 + i)
            assert strategy.experimental_local_results(made) == expected
            assert strategy.experimental_local_results(strategy.run(replica_fn)) == expected

    def test_b51_single_values(self, layout: Layout) -> None:
        """Wrap what is not distributed in a tuple of one."""
        array = np.ones(2)
        with self.strategy(layout) as strategy:
            assert strategy.experimental_local_results(3) == (3,)
            assert strategy.experimental_local_results(None) == (None,)
            assert strategy.experimental_local_results("word") == ("word",)
            (one,) = strategy.experimental_local_results(array)
            assert one is array

    def test_b51_nests(self, layout: Layout) -> None:
        """Return one nest for each local replica."""
        with self.strategy(layout) as strategy:
            nest = {"id": distribute(strategy, int), "same": "s"}
            assert strategy.experimental_local_results(nest) == tuple(
                {"id": i, "same": "s"} for i in local_ids(layout)
            )
            assert strategy.experimental_local_results([1, 2]) == ([1, 2],) * layout.devices

    def test_b51_variables(self, layout: Layout) -> None:
        """Return the copies of a variable."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable(np.arange(2))
            results = strategy.experimental_local_results(variable)
            assert len(results) == self.copies(layout)
            for one in results:
                assert isinstance(one, Variable)
                equal(one, np.arange(2))
