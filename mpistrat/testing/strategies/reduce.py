"""Conformance of ``Strategy.reduce``."""

from __future__ import annotations

import numpy as np
import pytest

from mpistrat.strategy.context import get_replica_context
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import (
    StrategyConformance,
    distribute,
    equal,
    local_ids,
    rank_in,
    together,
)
from mpistrat.types import Array, ArrayLike

__all__ = ["ReduceConformance"]


def _row(replica: int) -> Array:
    """Four examples of one replica: 0 to 3, 4 to 7, ..."""
    return np.arange(4.0) + 4 * replica


def _table(replica: int) -> Array:
    return np.arange(6.0).reshape(2, 3) * (replica + 1)


def _ragged(replica: int) -> Array:
    """One element on replica 0, two on replica 1, ..."""
    return np.arange(replica + 1.0) + 10 * replica


class ReduceConformance(StrategyConformance):
    """Values of all replicas are combined, and every rank gets the result."""

    @pytest.mark.parametrize("op", [ReduceOp.SUM, "SUM", "sum", "Sum"])
    def test_b30_sum_by_member_or_name(self, layout: Layout, op: ReduceOp | str) -> None:
        """Sum, whatever the case of the name."""
        with self.strategy(layout) as strategy:
            total = strategy.reduce(op, distribute(strategy, np.float64), axis=None)
            equal(total, layout.replicas * (layout.replicas - 1) / 2)

    @pytest.mark.parametrize("op", [ReduceOp.MEAN, "MEAN", "mean"])
    def test_b30_mean_by_member_or_name(self, layout: Layout, op: ReduceOp | str) -> None:
        """Average over the replicas."""
        with self.strategy(layout) as strategy:
            mean = strategy.reduce(op, distribute(strategy, np.float64), axis=None)
            equal(mean, (layout.replicas - 1) / 2)

    def test_b30_other_names_are_value_errors(self, layout: Layout) -> None:
        """Refuse another name or type on every rank, and go on working."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, np.float64)
            with pytest.raises(ValueError, match="'MAX' is not a valid ReduceOp"):
                strategy.reduce("max", value, axis=None)
            with pytest.raises(TypeError, match="expected ReduceOp"):
                strategy.reduce(1, value, axis=None)  # type: ignore[arg-type]
            equal(strategy.reduce("MEAN", value, axis=None), (layout.replicas - 1) / 2)

    def test_b30_mean_of_integers_is_float64(self, layout: Layout) -> None:
        """Divide exactly, without rounding to the integers' dtype."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, np.int32)
            equal(strategy.reduce("MEAN", value, axis=None), (layout.replicas - 1) / 2)
            total = layout.replicas * (layout.replicas - 1) // 2
            equal(strategy.reduce("SUM", value, axis=None), np.int32(total))

    def test_b31_axis_none_is_elementwise(self, layout: Layout) -> None:
        """Keep the shape; combine element by element."""
        with self.strategy(layout) as strategy:
            expected = sum(together(layout, _table))
            value = distribute(strategy, _table)
            equal(strategy.reduce("SUM", value, axis=None), expected)
            equal(strategy.reduce("MEAN", value, axis=None), expected / layout.replicas)

    def test_b31_nests_are_reduced_leaf_by_leaf(self, layout: Layout) -> None:
        """Take what run returned, whatever its structure; dtypes may be mixed."""
        with self.strategy(layout) as strategy:
            nest = {
                "a": distribute(strategy, np.float32),
                "b": (distribute(strategy, _row), distribute(strategy, np.int64)),
            }
            total = strategy.reduce("SUM", nest, axis=None)
            ids = sum(range(layout.replicas))
            equal(total["a"], np.float32(ids))
            equal(total["b"][0], sum(together(layout, _row)))
            equal(total["b"][1], np.int64(ids))

    @pytest.mark.parametrize("axis", [0, 1, -1, (0, 1)])
    def test_b32_axis_is_summed_too(self, layout: Layout, axis: int | tuple[int, ...]) -> None:
        """Sum along dimensions of each replica's value and over the replicas."""
        with self.strategy(layout) as strategy:
            total = strategy.reduce("SUM", distribute(strategy, _table), axis=axis)
            equal(total, sum(together(layout, _table)).sum(axis))

    def test_b32_vectors_give_scalars(self, layout: Layout) -> None:
        """Sum all examples of the global batch."""
        with self.strategy(layout) as strategy:
            examples = 4 * layout.replicas
            total = strategy.reduce("SUM", distribute(strategy, _row), axis=0)
            equal(total, examples * (examples - 1) / 2)

    def test_b32_bools_are_counted(self, layout: Layout) -> None:
        """Sum along an axis as NumPy's sum does: how many are true, of all replicas."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, lambda i: np.array([True, i % 2 == 0, False]))
            replicas = layout.replicas
            total = strategy.reduce("SUM", value, axis=0)
            equal(total, np.int64(replicas + (replicas + 1) // 2))
            equal(strategy.reduce("MEAN", value, axis=0), float(total) / (3 * replicas))

    def test_b33_mean_divides_by_the_global_count(self, layout: Layout) -> None:
        """Weigh every example alike, however many each replica has."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, _ragged)
            examples = np.concatenate(together(layout, _ragged))
            assert len(examples) == layout.replicas * (layout.replicas + 1) // 2
            mean = strategy.reduce(ReduceOp.MEAN, value, axis=0)
            np.testing.assert_allclose(mean, examples.sum() / len(examples), rtol=1e-15)
            assert np.shape(mean) == ()

    def test_b33_empty_replicas_do_not_count(self, layout: Layout) -> None:
        """Average what there is when only replica 0 has examples."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, lambda i: np.array([2.0, 4.0])[: 2 * (i == 0)])
            equal(strategy.reduce("MEAN", value, axis=0), 3.0)

    def test_b34_unequal_shapes_are_value_errors(self, layout: Layout) -> None:
        """Refuse to add arrays of different shapes, on every rank; axis=0 can."""
        if layout.replicas == 1:
            pytest.skip("one replica has one shape")
        with self.strategy(layout) as strategy:
            value = distribute(strategy, _ragged)
            with pytest.raises(ValueError, match="shape"):
                strategy.reduce("SUM", value, axis=None)
            equal(
                strategy.reduce("SUM", value, axis=0),
                np.concatenate(together(layout, _ragged)).sum(),
            )

    def test_b35_bare_values(self, layout: Layout) -> None:
        """Apply the rule for bare values: the only local replica's, or one that all share."""
        mine = np.array([1.0, 2.0]) + rank_in(layout)
        ranks = layout.ranks * (layout.ranks - 1) / 2
        with self.strategy(layout) as strategy:
            if layout.devices == 1:
                total = np.array([1.0, 2.0]) * layout.ranks + ranks
                equal(strategy.reduce("SUM", mine, axis=None), total)
                equal(strategy.reduce("MEAN", mine, axis=None), total / layout.ranks)
                return
            with pytest.raises(ValueError, match="non-DistributedValues"):
                strategy.reduce("SUM", mine, axis=None)
            shared = np.array([1.0, 2.0])
            equal(strategy.reduce("MEAN", shared, axis=None), shared)
            equal(strategy.reduce("SUM", shared, axis=0), 3.0 * layout.replicas)

    def test_b36_not_in_a_replica(self, layout: Layout) -> None:
        """Point to merge_call when called in a replica function."""
        with self.strategy(layout) as strategy:

            def replica_fn() -> None:
                with pytest.raises(RuntimeError, match="requires being in cross-replica context"):
                    strategy.reduce("SUM", np.ones(2), axis=None)

            strategy.run(replica_fn)

    def test_b36_allowed_in_a_merge_call(self, layout: Layout) -> None:
        """Reduce across the replicas from inside them."""
        with self.strategy(layout) as strategy:

            def replica_fn(x: Array) -> Array:
                replica = get_replica_context()
                assert replica is not None
                total: Array = replica.merge_call(
                    lambda s, value: s.reduce("SUM", value, axis=None), args=(x,)
                )
                return total

            result = strategy.run(replica_fn, args=(distribute(strategy, _row),))
            for one in strategy.experimental_local_results(result):
                equal(one, sum(together(layout, _row)))

    def test_b37_result_is_a_new_array_on_the_host(self, layout: Layout) -> None:
        """Return memory that the caller owns: writing into it changes no replica's value."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, _row)
            total = strategy.reduce("SUM", value, axis=None)
            assert isinstance(total, np.ndarray)
            total[:] = -1.0
            for replica, one in zip(local_ids(layout), value.values, strict=True):
                equal(one, _row(replica))

    @pytest.mark.parametrize(
        ("value", "mean"),
        [
            (np.array([True, True, True, False]), 0.75),
            (np.full(4, 2**30, np.int32), 2.0**30),
            (np.full(4, 200, np.uint8), 200.0),
            (np.full(4, 60000.0, np.float16), np.float16(60000.0)),
        ],
    )
    def test_b33_mean_along_an_axis_does_not_overflow(
        self, layout: Layout, value: Array, mean: ArrayLike
    ) -> None:
        """Accumulate integers and bool in float64, halves in float32."""
        with self.strategy(layout) as strategy:
            values = distribute(strategy, lambda replica: value)
            equal(strategy.reduce("MEAN", values, axis=0), mean)
