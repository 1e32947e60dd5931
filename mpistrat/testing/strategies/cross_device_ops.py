"""Conformance of `CrossDeviceOps`, attached to a strategy's ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mpistrat.strategy.base import Strategy
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.reduction.cross_device_ops import (
    CollectiveAllReduce,
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.values import DistributedValues, Mirrored
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import (
    StrategyConformance,
    distribute,
    equal,
    local_ids,
    rank_in,
    together,
)
from mpistrat.types import Array

__all__ = ["KINDS", "CrossDeviceOpsConformance", "OneByOne"]


class OneByOne(CrossDeviceOps):
    """A user's subclass that implements the reduction of one value, and counts its calls."""

    calls = 0

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: Any,
        destinations: Any,
        options: CommunicationOptions,
    ) -> Mirrored:
        """Gather everything, and combine it in replica order."""
        self.calls += 1
        values = [per_replica_value]
        if isinstance(per_replica_value, DistributedValues):
            values = list(per_replica_value.values)
        rows = np.stack([np.asarray(value) for value in values])
        if self.communicator is not None:
            rows = self.communicator.allgather(rows, timeout=options.timeout_seconds)
        total = rows.sum(0, dtype=rows.dtype) if reduce_op is ReduceOp.SUM else rows.mean(0)
        return self.broadcast_implementation(total, destinations)


KINDS: tuple[type[CrossDeviceOps], ...] = (
    CollectiveAllReduce,
    ReductionToOneDevice,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    OneByOne,
)
"""All the ways that there are, and one of a user's own."""

_OWN = KINDS[:-1]


def _row(replica: int) -> Array:
    return np.arange(5.0) * (replica + 1)


class CrossDeviceOpsConformance(StrategyConformance):
    """Every `CrossDeviceOps` gives the same sums and means."""

    @contextmanager
    def attached(self, layout: Layout, ops: CrossDeviceOps) -> Iterator[Strategy]:
        """Give a strategy, to whose ranks `ops` is attached."""
        with self.strategy(layout) as strategy:
            ops.attach(strategy.extended.communicator, strategy.num_replicas_in_sync)
            yield strategy

    @pytest.mark.parametrize("kind", KINDS)
    def test_reduce(self, layout: Layout, kind: type[CrossDeviceOps]) -> None:
        """Combine over all replicas, with a copy for each destination."""
        ops, expected = kind(), sum(together(layout, _row))
        with self.attached(layout, ops) as strategy:
            value = distribute(strategy, _row)
            total = ops.reduce(ReduceOp.SUM, value, value)
            mean = ops.reduce("mean", value, None)
            assert (len(total.values), len(mean.values)) == (layout.devices, 1)
            for one in total.values:
                equal(one, expected)
                np.add(one, 1.0, out=one)  # would show in the next if they shared memory
            np.testing.assert_allclose(mean, expected / layout.replicas, rtol=1e-15)
            for replica, one in zip(local_ids(layout), value.values, strict=True):
                equal(one, _row(replica))

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("bytes_per_pack", [0, 1, 50])
    def test_batches_of_mixed_dtypes(
        self, layout: Layout, kind: type[CrossDeviceOps], bytes_per_pack: int
    ) -> None:
        """Combine values of several dtypes and shapes at once, whatever the packing."""
        ops = kind()
        ids = sum(range(layout.replicas))
        options = CommunicationOptions(bytes_per_pack=bytes_per_pack)
        with self.attached(layout, ops) as strategy:
            makers = (_row, np.int32, np.float32, lambda i: np.empty((0, i * 0 + 3)), _row)
            pairs = [(distribute(strategy, make), None) for make in makers]
            totals = ops.batch_reduce("SUM", pairs, options)
            row = sum(together(layout, _row))
            expected = (row, np.int32(ids), np.float32(ids), np.empty((0, 3)), row)
            assert len(totals) == len(expected)
            for one, other in zip(totals, expected, strict=True):
                equal(one, other)
            assert ops.batch_reduce("SUM", [], options) == []

    @pytest.mark.parametrize("kind", _OWN)
    def test_halves_are_accumulated_in_float32(
        self, layout: Layout, kind: type[CrossDeviceOps]
    ) -> None:
        """Round once, at the end: 2048 + 1 + 1 + 1 is 2048 in float16 if each sum is rounded."""
        ops = kind()
        with self.attached(layout, ops) as strategy:
            value = distribute(strategy, lambda i: np.float16(1 if i else 2048))
            equal(ops.reduce("SUM", value, None), np.float16(2048 + layout.replicas - 1))

    @pytest.mark.parametrize("kind", _OWN)
    def test_means_of_integers(self, layout: Layout, kind: type[CrossDeviceOps]) -> None:
        """Give float64, and do not overflow on the way."""
        ops = kind()
        with self.attached(layout, ops) as strategy:
            value = distribute(strategy, lambda i: np.uint8(250 + i % 2))
            odd = layout.replicas // 2
            mean = ops.reduce("MEAN", value, None)
            np.testing.assert_allclose(mean, 250 + odd / layout.replicas, rtol=1e-15)
            assert mean.dtype == np.float64

    def test_accumulation_fn(self, layout: Layout) -> None:
        """Combine a rank's values by the function given, and the ranks' results by their sum."""
        ops = ReductionToOneDevice(accumulation_fn=lambda arrays: np.max(arrays, axis=0))
        with self.attached(layout, ops) as strategy:
            largest = [(rank + 1) * layout.devices for rank in range(layout.ranks)]
            total = ops.reduce("SUM", distribute(strategy, _row), None)
            equal(total, np.arange(5.0) * sum(largest))

    def test_accumulation_fn_that_raises(self, layout: Layout) -> None:
        """Tell all ranks when it raises on the last one."""

        def accumulate(arrays: Any) -> Any:
            if rank_in(layout) == layout.ranks - 1:
                raise ValueError("cannot accumulate")
            return arrays[0]

        ops = ReductionToOneDevice(accumulation_fn=accumulate)
        with self.attached(layout, ops) as strategy:
            with pytest.raises(ValueError, match="cannot accumulate"):
                ops.reduce("SUM", distribute(strategy, _row), None)
            equal(strategy.reduce("MEAN", np.ones(2), axis=None), np.ones(2))

    @pytest.mark.parametrize("kind", _OWN)
    @pytest.mark.parametrize("make", [np.ones, lambda n: np.ones(1, [np.float64, "f4"][n % 2])])
    def test_unequal_local_values(
        self, layout: Layout, kind: type[CrossDeviceOps], make: Any
    ) -> None:
        """Refuse unequal shapes or dtypes on the last rank alone, on every rank."""
        if layout.devices == 1:
            pytest.skip("one replica a rank is always equal to itself")
        ops = kind()
        is_last = rank_in(layout) == layout.ranks - 1
        with self.attached(layout, ops) as strategy:
            value = distribute(strategy, lambda i: make(2 + i if is_last else 2))
            with pytest.raises(ValueError, match="cannot reduce"):
                ops.batch_reduce("SUM", [(value, None)])
            good = distribute(strategy, lambda _: np.ones(2))
            equal(ops.reduce("SUM", good, None), np.full(2, 1.0 * layout.replicas))

    def test_a_subclass_reduces_batches_one_by_one(self, layout: Layout) -> None:
        """Need only the reduction of one value."""
        ops = OneByOne()
        with self.attached(layout, ops) as strategy:
            value = distribute(strategy, _row)
            ops.batch_reduce("SUM", [(value, None), (value, value)])
            assert ops.calls == 2
            assert len(ops.broadcast(np.ones(2), value).values) == layout.devices
