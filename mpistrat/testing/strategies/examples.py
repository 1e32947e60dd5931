"""Conformance by example: small programs as users write them, with the results they expect.

The examples of the reference pages, in our own code: for arrays, and for any number of replicas.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpistrat.data import ArraySpec, Dataset
from mpistrat.strategy.context import get_replica_context
from mpistrat.strategy.input.input_context import InputContext, ValueContext
from mpistrat.strategy.replicas.replica_context import ReplicaContext
from mpistrat.strategy.values import PerReplica
from mpistrat.strategy.variables.base import Variable
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import (
    StrategyConformance,
    distribute,
    equal,
    local_ids,
    together,
)
from mpistrat.types import Array

__all__ = ["ExamplesConformance"]

_EVEN = 24
"""A batch size that all tested numbers of replicas divide."""


def _context() -> ReplicaContext:
    replica = get_replica_context()
    assert replica is not None, "not in a replica"
    return replica


def _id() -> np.int32:
    return np.int32(_context().replica_id_in_sync_group)


def _four(replica: int) -> Array:
    """Four examples of one replica: 0 to 3, 4 to 7, ..."""
    return np.arange(4) + 4 * replica


class ExamplesConformance(StrategyConformance):
    """Programs that are short enough to be read in one look."""

    def test_e01_train_step_over_five_elements(self, layout: Layout) -> None:
        """Add one to each element of batches of two, the last of which is not full."""
        with self.strategy(layout) as strategy:
            data = strategy.experimental_distribute_dataset(Dataset.range(5).batch(2))
            seen = []
            with strategy.scope():
                for step in data:
                    result = strategy.run(lambda batch: batch + 1, args=(step,))
                    seen.append(strategy.experimental_local_results(result))
            batches = [[0, 1], [2, 3], [4]]
            assert len(seen) == len(batches)
            for results, batch in zip(seen, batches, strict=True):
                pieces = np.array_split(np.array(batch) + 1, layout.replicas)
                for one, replica in zip(results, local_ids(layout), strict=True):
                    equal(one, pieces[replica])

    def test_e03_one_element_a_replica(self, layout: Layout) -> None:
        """Double batches of one element for each replica: two replicas get [[0], [2]], ..."""
        size = layout.replicas
        with self.strategy(layout) as strategy:
            data = Dataset.range(2 * size).batch(size)
            results = [
                strategy.run(lambda x: x * 2, args=(step,))
                for step in strategy.experimental_distribute_dataset(data)
            ]
            assert len(results) == 2
            for number, result in enumerate(results):
                expected = [[2 * (number * size + i)] for i in local_ids(layout)]
                equal(strategy.experimental_local_results(result), expected)

    @pytest.mark.parametrize("batch_size", [None, 2])
    def test_e04_numpy_dataset(self, layout: Layout, batch_size: int | None) -> None:
        """Distribute ten ones, as one batch or as batches of two."""
        with self.strategy(layout) as strategy:
            data = strategy.experimental_make_numpy_dataset(np.ones(10, np.float32))
            data = data.batch(batch_size or 10)
            total = np.float32(0)
            for step in strategy.experimental_distribute_dataset(data):
                total += strategy.reduce("SUM", step, axis=0)
            equal(total, np.float32(10))

    def test_e05_input_function_and_experimental_run(self, layout: Layout) -> None:
        """Let a function make the input, in batches for one replica; run on it."""
        with self.strategy(layout) as strategy:

            def input_fn(context: InputContext) -> Dataset:
                size = context.get_per_replica_batch_size(_EVEN)
                data = Dataset.from_tensors([[1.0]]).repeat().batch(size)
                return data.shard(context.num_input_pipelines, context.input_pipeline_id)

            with strategy.scope():
                iterator = strategy.make_input_fn_iterator(input_fn)
                iterator.initialize()
                result = strategy.experimental_run(lambda batch: batch * 2, iterator)
            for one in strategy.experimental_local_results(result):
                equal(one, np.full((_EVEN // layout.replicas, 1, 1), 2.0))

    def test_e06_sum_of_replica_ids(self, layout: Layout) -> None:
        """Sum the replicas' ids: 1 with two replicas, of the dtype of the ids."""
        with self.strategy(layout) as strategy:
            total = strategy.reduce("SUM", strategy.run(_id), axis=None)
            equal(total, np.int32(layout.replicas * (layout.replicas - 1) // 2))

    def test_e07_results_are_on_the_replicas_devices(self, layout: Layout) -> None:
        """Run each replica on its device, and reduce to the host."""
        with self.strategy(layout) as strategy:
            devices: list[str] = []

            def replica_fn() -> np.int32:
                devices.append(*_context().devices)
                return _id()

            result = strategy.run(replica_fn)
            assert tuple(devices) == strategy.extended.worker_devices
            assert [d.rpartition("/")[2] for d in devices] == [
                f"device:CPU:{i}" for i in range(layout.devices)
            ]
            assert type(strategy.reduce("SUM", result, axis=None)) is np.ndarray

    def test_e08_sum_across_replicas(self, layout: Layout) -> None:
        """Add first to first, second to second: [0+4, 1+5, 2+6, 3+7] with two replicas."""
        with self.strategy(layout) as strategy:
            total = strategy.reduce("sum", distribute(strategy, _four), axis=None)
            count = layout.replicas
            equal(total, count * np.arange(4) + 4 * (count * (count - 1) // 2))

    def test_e09_sum_of_all_examples(self, layout: Layout) -> None:
        """Add everything: 28 with two replicas."""
        with self.strategy(layout) as strategy:
            total = strategy.reduce("sum", distribute(strategy, _four), axis=0)
            count = 4 * layout.replicas
            equal(total, count * (count - 1) // 2)

    def test_e10_last_batch(self, layout: Layout) -> None:
        """Average a last batch that gives the last replica less: by axis=0 only."""
        with self.strategy(layout) as strategy:
            last = layout.replicas - 1

            def make(replica: int) -> Array:
                rows = np.arange(4) + 4 * replica
                return rows[:2] if replica == last > 0 else rows

            value = distribute(strategy, make)
            everything = np.concatenate(together(layout, make))
            mean = strategy.reduce("MEAN", value, axis=0)
            np.testing.assert_allclose(mean, everything.mean(), rtol=1e-15)
            if layout.replicas > 1:
                with pytest.raises(ValueError, match="shape"):
                    strategy.reduce("MEAN", value, axis=None)

    def test_e11_constant_input(self, layout: Layout) -> None:
        """Double 3.0 on every replica."""
        with self.strategy(layout) as strategy:
            result = strategy.run(lambda x: x * np.float32(2), args=(np.float32(3),))
            assert isinstance(result, PerReplica) == (layout.devices > 1)
            results = strategy.experimental_local_results(result)
            equal(results, np.full(layout.devices, 6.0, np.float32))

    def test_e12_number_of_replicas_as_input(self, layout: Layout) -> None:
        """Return one number bare when all replicas computed the same one."""
        with self.strategy(layout) as strategy:
            value = strategy.experimental_distribute_values_from_function(
                lambda context: context.num_replicas_in_sync
            )
            result = strategy.run(lambda x: x * 2, args=(value,))
            assert result == 2 * layout.replicas
            assert isinstance(result, int)

    def test_e13_all_reduce_of_ids(self, layout: Layout) -> None:
        """Give the sum of the ids to every replica."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, np.int32)
            result = strategy.run(lambda x: _context().all_reduce("sum", x), args=(value,))
            assert isinstance(result, PerReplica) == (layout.devices > 1)
            total = np.int32(layout.replicas * (layout.replicas - 1) // 2)
            for one in strategy.experimental_local_results(result):
                equal(one, total)

    def test_e14_variables_in_and_out_of_scope(self, layout: Layout) -> None:
        """Show a variable of the scope with its copies, and one from outside plainly."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                mirrored = Variable(1.0)
            regular = Variable(1.0)
        plain = "<mpistrat.Variable '{}:0' shape=() dtype=float64, numpy=1.0>"
        assert repr(regular) == plain.format("Variable")
        if self.mirrors_variables:
            names = ["Variable", *(f"Variable/replica_{i}" for i in range(1, layout.devices))]
            rows = [f"  {i}: {plain.format(name)}" for i, name in enumerate(names)]
            assert repr(mirrored) == "MirroredVariable:{\n" + ",\n".join(rows) + "\n}"

    def test_e22_a_constant_a_replica(self, layout: Layout) -> None:
        """Give 1.0 to every replica."""
        with self.strategy(layout) as strategy:
            value = strategy.experimental_distribute_values_from_function(lambda _: np.float32(1))
            assert strategy.experimental_local_results(value) == (1.0,) * layout.devices

    def test_e22_b_an_element_a_replica(self, layout: Layout) -> None:
        """Give each replica its element of an array: two get (3.0, 2.0) of [3, 2, 1]."""
        array = np.arange(layout.replicas + 1.0, 0.0, -1.0)

        def value_fn(context: ValueContext) -> Any:
            return array[context.replica_id_in_sync_group]

        with self.strategy(layout) as strategy:
            value = strategy.experimental_distribute_values_from_function(value_fn)
            expected = tuple(layout.replicas + 1.0 - i for i in local_ids(layout))
            assert strategy.experimental_local_results(value) == expected

    def test_e22_c_number_of_replicas(self, layout: Layout) -> None:
        """Give the number of replicas to each: (2, 2)."""
        with self.strategy(layout) as strategy:
            value = strategy.experimental_distribute_values_from_function(
                lambda context: context.num_replicas_in_sync
            )
            expected = (layout.replicas,) * layout.devices
            assert strategy.experimental_local_results(value) == expected

    def test_e22_d_values_made_beforehand(self, layout: Layout) -> None:
        """Hand out values that were made in advance, one for each device."""
        values = [np.array(float(i)) for i in range(layout.replicas)]
        with self.strategy(layout) as strategy:
            distributed = distribute(strategy, values.__getitem__)
            assert len(strategy.extended.worker_devices) == layout.devices
            results = strategy.experimental_local_results(distributed)
            assert all(one is values[i] for one, i in zip(results, local_ids(layout), strict=True))

    def test_e23_gather_columns(self, layout: Layout) -> None:
        """Stack [[1], [2]] of every replica."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, lambda _: np.array([[1], [2]]))
            gathered = strategy.gather(value, axis=0)
            equal(gathered, np.array([[1], [2]] * layout.replicas))

    @pytest.mark.parametrize(("axis", "factors"), [(0, (4, 1, 1)), (1, (1, 4, 1)), (2, (1, 1, 4))])
    def test_e23_b_gather_along_each_axis(
        self, layout: Layout, axis: int, factors: tuple[int, ...]
    ) -> None:
        """Gather (1, 2, 3): four replicas give (4, 2, 3), (1, 8, 3) or (1, 2, 12)."""
        block = np.arange(6).reshape(1, 2, 3)
        with self.strategy(layout) as strategy:
            gathered = strategy.gather(distribute(strategy, lambda _: block), axis=axis)
            tiles = [layout.replicas if factor == 4 else 1 for factor in factors]
            equal(gathered, np.tile(block, tiles))

    @pytest.mark.parametrize("method", ["run", "experimental_run_v2"])
    def test_e26_dataset_of_four_files(self, layout: Layout, method: str) -> None:
        """Train on records that lie in four files."""
        with tempfile.TemporaryDirectory() as name, self.strategy(layout) as strategy:
            files = [Path(name) / f"{number}.npy" for number in range(1, 5)]
            for number, file in enumerate(files):
                np.save(file, np.arange(3.0) + 3 * number)

            def records() -> Iterator[Array]:
                for file in files:
                    yield from np.load(file)

            data = Dataset.from_generator(records, ArraySpec((), np.float64))
            distributed = strategy.experimental_distribute_dataset(data.batch(_EVEN // 4))
            run = getattr(strategy, method)
            totals = [
                strategy.reduce("SUM", run(lambda x: x * x, args=(step,)), axis=0)
                for step in distributed
            ]
            squares = np.arange(12.0) ** 2
            equal(totals, [squares[:6].sum(), squares[6:].sum()])

    @pytest.mark.parametrize(
        "method",
        ["distribute_datasets_from_function", "experimental_distribute_datasets_from_function"],
    )
    def test_e27_endless_ones_from_a_function(self, layout: Layout, method: str) -> None:
        """Batch and shard by hand: a global batch is cut by the replicas' number."""
        with self.strategy(layout) as strategy:

            def dataset_fn(context: InputContext) -> Dataset:
                size = context.get_per_replica_batch_size(_EVEN)
                data = Dataset.from_tensors([[1.0]]).repeat().batch(size)
                return data.shard(context.num_input_pipelines, context.input_pipeline_id)

            iterator = iter(getattr(strategy, method)(dataset_fn))
            for _ in range(3):
                result = strategy.run(lambda batch: batch.sum(), args=(next(iterator),))
                equal(strategy.reduce("SUM", result, axis=None), float(_EVEN))

    def test_e29_iterator_and_call_for_each_replica(self, layout: Layout) -> None:
        """Get the next input and call a function on each replica with it; no initialize()."""
        with self.strategy(layout) as strategy:

            def input_fn(context: InputContext) -> Dataset:
                data = Dataset.from_tensors([[1.0]]).repeat()
                return data.shard(context.num_input_pipelines, context.input_pipeline_id)

            with strategy.scope():
                iterator = strategy.make_input_fn_iterator(input_fn)
                result = strategy.extended.call_for_each_replica(
                    lambda x: x + _id(), iterator.get_next()
                )
            for one, replica in zip(
                strategy.experimental_local_results(result), local_ids(layout), strict=True
            ):
                equal(one, np.array([[1.0 + replica]]))
