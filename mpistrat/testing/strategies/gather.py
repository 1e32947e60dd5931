"""Conformance of ``Strategy.gather`` and ``ReplicaContext.all_gather``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpistrat.strategy.context import get_replica_context
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import (
    StrategyConformance,
    distribute,
    equal,
    rank_in,
    together,
)
from mpistrat.types import Array

__all__ = ["GatherConformance"]


def _block(replica: int) -> Array:
    return np.arange(6).reshape(1, 2, 3) + 100 * replica


def _ragged(axis: int) -> Any:
    """Return a function for values whose length along `axis` is 1 on replica 0, 2 on 1, ..."""

    def make(replica: int) -> Array:
        shape = [2, 2]
        shape[axis] = replica + 1
        return np.full(shape, replica, np.float32)

    return make


def _all_gather(value: Any, axis: int) -> Any:
    replica = get_replica_context()
    assert replica is not None
    return replica.all_gather(value, axis=axis)


class GatherConformance(StrategyConformance):
    """Values of all replicas are laid end to end, on every rank."""

    @pytest.mark.parametrize("axis", [0, 1, 2])
    def test_b40_in_replica_order(self, layout: Layout, axis: int) -> None:
        """Concatenate along the axis, replica 0 first."""
        with self.strategy(layout) as strategy:
            gathered = strategy.gather(distribute(strategy, _block), axis=axis)
            equal(gathered, np.concatenate(together(layout, _block), axis=axis))

    @pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, np.complex128])
    def test_b40_dtypes_stay(self, layout: Layout, dtype: type[np.generic]) -> None:
        """Move values of any dtype without touching them."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, lambda i: np.array([i, 1], dtype))
            expected = [np.array([i, 1], dtype) for i in range(layout.replicas)]
            equal(strategy.gather(value, axis=0), np.concatenate(expected))

    @pytest.mark.parametrize("axis", [3, -1, -4])
    def test_b41_axis_out_of_range(self, layout: Layout, axis: int) -> None:
        """Refuse an axis below 0 or beyond the dimensions, on every rank."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, _block)
            with pytest.raises(ValueError, match=f"axis={axis}"):
                strategy.gather(value, axis=axis)
            assert strategy.gather(value, axis=0).shape == (layout.replicas, 2, 3)

    @pytest.mark.parametrize("axis", [0, 1])
    def test_b42_lengths_may_differ_along_the_axis(self, layout: Layout, axis: int) -> None:
        """Gather values of different lengths."""
        with self.strategy(layout) as strategy:
            gathered = strategy.gather(distribute(strategy, _ragged(axis)), axis=axis)
            equal(gathered, np.concatenate(together(layout, _ragged(axis)), axis=axis))

    def test_b42_empty_values_take_part(self, layout: Layout) -> None:
        """Gather from replicas that have no rows."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, lambda i: np.ones((2 * (i == 0), 3)))
            equal(strategy.gather(value, axis=0), np.ones((2, 3)))

    def test_b42_but_not_along_another(self, layout: Layout) -> None:
        """Refuse values that differ in another dimension, or in how many they have."""
        if layout.replicas == 1:
            pytest.skip("one replica has one shape")
        with self.strategy(layout) as strategy:
            value = distribute(strategy, _ragged(1))
            with pytest.raises(ValueError, match=r"axis|shape"):
                strategy.gather(value, axis=0)
            value = distribute(strategy, lambda i: np.ones([2] * (i + 1)))
            with pytest.raises(ValueError, match=r"axis|shape"):
                strategy.gather(value, axis=0)
            value = distribute(strategy, lambda _: np.ones(1))
            equal(strategy.gather(value, axis=0), np.ones(layout.replicas))

    def test_b43_values_need_a_dimension(self, layout: Layout) -> None:
        """Refuse 0-d values, and say what to do."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, np.float64)
            with pytest.raises(ValueError, match=r"0-d .*expand_dims"):
                strategy.gather(value, axis=0)

    def test_b45_not_in_a_replica(self, layout: Layout) -> None:
        """Refuse gather in a replica function."""
        with self.strategy(layout) as strategy:

            def replica_fn() -> None:
                with pytest.raises(RuntimeError, match="requires being in cross-replica context"):
                    strategy.gather(np.ones(2), axis=0)

            strategy.run(replica_fn)

    @pytest.mark.parametrize("axis", [0, 1])
    def test_b45_all_gather_in_a_replica(self, layout: Layout, axis: int) -> None:
        """Give every replica what gather gives across them, ragged or not; nests too."""
        make = _ragged(axis)
        with self.strategy(layout) as strategy:
            value = {
                "ragged": distribute(strategy, make),
                "id": distribute(strategy, lambda i: np.array([[i]])),
            }
            result = strategy.run(_all_gather, args=(value, axis))
            for one in strategy.experimental_local_results(result):
                equal(one["ragged"], np.concatenate(together(layout, make), axis=axis))
                equal(one["id"].ravel(), np.arange(layout.replicas))

    def test_b46_bare_values(self, layout: Layout) -> None:
        """Take a bare value as the only local replica's, or return one that all share."""
        mine = np.array([[1.0 + rank_in(layout)]])
        with self.strategy(layout) as strategy:
            if layout.devices == 1:
                equal(strategy.gather(mine, axis=0), 1.0 + np.arange(layout.ranks)[:, None])
            else:
                equal(strategy.gather(mine, axis=0), mine)

    def test_b47_inside_any_function(self, layout: Layout) -> None:
        """Work inside a function that the user calls across the replicas, again and again."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, lambda i: np.array([i]))

            def step() -> Array:
                return strategy.gather(value, axis=0)

            for _ in range(3):
                equal(step(), np.arange(layout.replicas))
