"""Conformance of the methods that feed the replicas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mpistrat.data import AutoShardPolicy, Dataset
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.input.input_context import InputContext, InputOptions, InputReplicationMode
from mpistrat.strategy.values import DistributedValues
from mpistrat.system.waiting import wait_until
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import StrategyConformance, equal, local_ids, rank_in
from mpistrat.types import Array

__all__ = ["InputConformance"]

_DEADLINE_S = 5.0


def _steps(strategy: Strategy, data: Any) -> list[tuple[Any, ...]]:
    """Return what each local replica gets, step by step."""
    return [strategy.experimental_local_results(step) for step in data]


def _pieces(layout: Layout, batch: Any) -> list[Array]:
    """Return the parts of a global batch that this rank's replicas should get."""
    pieces = np.array_split(np.asarray(batch), layout.replicas)
    return [pieces[i] for i in local_ids(layout)]


def _check(actual: list[tuple[Any, ...]], expected: list[list[Array]]) -> None:
    """Compare step by step and replica by replica; pieces may be of different lengths."""
    assert len(actual) == len(expected)
    for step, wanted in zip(actual, expected, strict=True):
        assert len(step) == len(wanted)
        for one, other in zip(step, wanted, strict=True):
            equal(one, other)


class InputConformance(StrategyConformance):
    """Global batches are cut over the replicas; per-replica batches are handed out."""

    def test_b60_global_batches_are_cut(self, layout: Layout) -> None:
        """Give each replica its share of every global batch, in replica order."""
        size = 2 * layout.replicas
        with self.strategy(layout) as strategy:
            data = Dataset.range(3 * size).batch(size)
            steps = _steps(strategy, strategy.experimental_distribute_dataset(data))
            batches = np.arange(3 * size).reshape(3, size)
            _check(steps, [_pieces(layout, batch) for batch in batches])

    def test_b60_nests_are_cut_alike(self, layout: Layout) -> None:
        """Cut every array of an element at the same rows."""
        rows = np.arange(4.0 * layout.replicas)
        with self.strategy(layout) as strategy:
            data = Dataset.from_tensor_slices({"x": rows, "y": (-rows,)}).batch(len(rows))
            (step,) = strategy.experimental_distribute_dataset(data)
            assert isinstance(step, dict)
            for one, x in zip(
                strategy.experimental_local_results(step), _pieces(layout, rows), strict=True
            ):
                equal(one["x"], x)
                equal(one["y"][0], -x)

    def test_b60_off_keeps_the_ranks_apart(self, layout: Layout) -> None:
        """Cut a rank's own batches for its own replicas when sharding is off."""
        options = InputOptions(auto_shard_policy=AutoShardPolicy.OFF)
        mine = 100 * rank_in(layout) + np.arange(2 * layout.replicas)
        with self.strategy(layout) as strategy:
            data = Dataset.from_tensor_slices(mine).batch(len(mine))
            steps = _steps(strategy, strategy.experimental_distribute_dataset(data, options))
            pieces = np.array_split(mine, layout.replicas)
            groups = [
                pieces[start : start + layout.devices]
                for start in range(0, layout.replicas, layout.devices)
            ]
            _check(steps, groups)

    @pytest.mark.parametrize("buffer_size", [0, 1])
    def test_b60_steps_are_prepared_ahead(self, layout: Layout, buffer_size: int) -> None:
        """Read ahead in the background, or not at all if no buffer is wanted."""
        read = []

        def batches() -> Iterator[Array]:
            for number in itertools.count():
                read.append(number)
                yield np.arange(layout.replicas)

        options = InputOptions(experimental_per_replica_buffer_size=buffer_size)
        with self.strategy(layout) as strategy:
            data = Dataset.from_generator(batches)
            iterator = iter(strategy.experimental_distribute_dataset(data, options))
            next(iterator)
            if buffer_size:
                assert wait_until(lambda: len(read) >= 2, _DEADLINE_S, 1e-3)
            else:
                assert len(read) == 1

    def test_b60_every_pass_starts_again(self, layout: Layout) -> None:
        """Walk the data set from its beginning with every iterator."""
        rows = np.arange(layout.replicas)
        with self.strategy(layout) as strategy:
            data = strategy.experimental_distribute_dataset(Dataset.from_tensors(rows))
            for _ in range(2):
                _check(_steps(strategy, data), [_pieces(layout, rows)])

    @pytest.mark.parametrize("policy", [AutoShardPolicy.AUTO, AutoShardPolicy.DATA])
    def test_b61_arrays_are_sharded_by_data(self, layout: Layout, policy: AutoShardPolicy) -> None:
        """Read everything on each rank and keep this rank's rows: each row goes to one replica."""
        rows = np.arange(5 * layout.replicas)
        with self.strategy(layout) as strategy:
            data = Dataset.from_tensor_slices(rows).batch(layout.replicas)
            options = InputOptions(auto_shard_policy=policy)
            steps = _steps(strategy, strategy.experimental_distribute_dataset(data, options))
            mine = np.concatenate([one for step in steps for one in step])
            everyone = strategy.gather(
                mine if layout.devices == 1 else _split(strategy, mine, layout), axis=0
            )
            equal(np.sort(everyone), rows)

    def test_b61_files_cannot_be_shared_out(self, layout: Layout) -> None:
        """Refuse sharding by file, since arrays know no files, and name what works."""
        options = InputOptions(auto_shard_policy=AutoShardPolicy.FILE)
        with self.strategy(layout) as strategy, pytest.raises(ValueError, match=r"DATA, or OFF"):
            strategy.experimental_distribute_dataset(np.ones(8), options)

    def test_b62_no_further_transformations(self, layout: Layout) -> None:
        """Offer iteration and the spec, none of a data set's transformations."""
        with self.strategy(layout) as strategy:
            data = strategy.experimental_distribute_dataset(Dataset.range(8).batch(4))
            assert iter(data)
            assert data.element_spec
            for name in ("map", "batch", "shuffle", "repeat", "take", "shard"):
                assert not hasattr(data, name)

    def test_b63_element_spec(self, layout: Layout) -> None:
        """Describe one replica's batch, for each local replica; every step fits."""
        rows = np.zeros((4 * layout.replicas + 1, 3), np.float32)
        with self.strategy(layout) as strategy:
            data = strategy.experimental_distribute_dataset(
                Dataset.from_tensor_slices(rows).batch(2 * layout.replicas)
            )
            spec = data.element_spec
            assert isinstance(spec, DistributedValues) == (layout.devices > 1)
            specs = strategy.experimental_local_results(spec)
            assert len(specs) == layout.devices
            assert specs[0].shape == (None, 3)
            assert specs[0].dtype == np.float32
            for step in _steps(strategy, data):
                assert all(s.is_compatible_with(x) for s, x in zip(specs, step, strict=True))

    def test_b64_function_is_called_once_a_rank(self, layout: Layout) -> None:
        """Take one batch for each local replica a step; neither batch nor shard."""
        calls = []
        first = 1000 * rank_in(layout)

        def dataset_fn(context: InputContext) -> Dataset:
            calls.append(context)
            return Dataset.range(first, first + 6 * layout.devices).batch(2)

        with self.strategy(layout) as strategy:
            data = strategy.distribute_datasets_from_function(dataset_fn)
            steps = _steps(strategy, data)
            batches = (first + np.arange(6 * layout.devices)).reshape(-1, layout.devices, 2)
            _check(steps, [list(step) for step in batches])
        assert len(calls) == 1

    @pytest.mark.parametrize("is_iterator", [False, True])
    def test_b64_per_replica_mode(self, layout: Layout, is_iterator: bool) -> None:
        """Call the function for each local replica; each walks a data set of its own."""
        mode = InputReplicationMode.PER_REPLICA
        calls = []

        def dataset_fn(context: InputContext) -> Dataset:
            calls.append((context.input_pipeline_id, context.num_input_pipelines))
            assert context.num_replicas_in_sync == layout.replicas
            first = 100 * context.input_pipeline_id
            return Dataset.range(first, first + 6).batch(2)

        with self.strategy(layout) as strategy:
            data: Any
            if is_iterator:
                data = strategy.make_input_fn_iterator(dataset_fn, mode)
                data.initialize()
            else:
                data = strategy.distribute_datasets_from_function(
                    dataset_fn, InputOptions(experimental_replication_mode=mode)
                )
            steps = _steps(strategy, data)
            rows = [[np.array([x, x + 1]) + 100 * i for i in local_ids(layout)] for x in (0, 2, 4)]
            _check(steps, rows)
        assert calls == [(i, layout.replicas) for i in local_ids(layout)]

    def test_b64_older_name(self, layout: Layout) -> None:
        """Do the same by the name of TensorFlow 2.0."""
        with self.strategy(layout) as strategy:
            data = strategy.experimental_distribute_datasets_from_function(
                lambda _: Dataset.range(layout.devices).batch(1)
            )
            _check(_steps(strategy, data), [[np.array([i]) for i in range(layout.devices)]])

    def test_b65_input_context(self, layout: Layout) -> None:
        """Tell the function its pipeline, and the batch size of a replica."""
        contexts = []

        def dataset_fn(context: InputContext) -> Dataset:
            contexts.append(context)
            return Dataset.range(1)

        with self.strategy(layout) as strategy:
            strategy.distribute_datasets_from_function(dataset_fn)
        (context,) = contexts
        assert context.num_input_pipelines == layout.ranks
        assert context.input_pipeline_id == rank_in(layout)
        assert context.num_replicas_in_sync == layout.replicas
        assert context.get_per_replica_batch_size(6 * layout.replicas) == 6
        if layout.replicas > 1:
            with pytest.raises(ValueError, match="not divisible"):
                context.get_per_replica_batch_size(6 * layout.replicas + 1)

    def test_b66_endless_data_that_differ_by_seed(self, layout: Layout) -> None:
        """Feed each rank from an endless data set of its own, told apart by the seed."""

        def dataset_fn(context: InputContext) -> Dataset:
            def draw() -> Iterator[Array]:
                stream = np.random.default_rng(context.input_pipeline_id)
                while True:
                    yield stream.random(2)

            return Dataset.from_generator(draw)

        with self.strategy(layout) as strategy:
            data = strategy.distribute_datasets_from_function(dataset_fn)
            steps = _steps(strategy, itertools.islice(data, 3))
        stream = np.random.default_rng(rank_in(layout))
        _check(steps, [[stream.random(2) for _ in range(layout.devices)] for _ in range(3)])

    @pytest.mark.parametrize(("rows", "batch"), [(5, 2), (14, 8), (3, 8), (1, 1)])
    def test_b67_last_partial_batch(self, layout: Layout, rows: int, batch: int) -> None:
        """Cut what is left as evenly as can be; the last replicas may get no rows at all."""
        with self.strategy(layout) as strategy:
            data = Dataset.range(rows).batch(batch)
            steps = _steps(strategy, strategy.experimental_distribute_dataset(data))
            parts = [np.arange(rows)[start : start + batch] for start in range(0, rows, batch)]
            _check(steps, [_pieces(layout, part) for part in parts])

    def test_b67_ranks_that_run_dry_get_empty_batches(self, layout: Layout) -> None:
        """Go on until every rank has ended, with batches of no rows in place of missing ones."""
        mine = 1 + rank_in(layout) * layout.devices  # rank r has so many batches

        def dataset_fn(context: InputContext) -> Dataset:
            return Dataset.range(mine).batch(1)

        with self.strategy(layout) as strategy:
            steps = _steps(strategy, strategy.distribute_datasets_from_function(dataset_fn))
        longest = 1 + (layout.ranks - 1) * layout.devices
        flat = [one for step in steps for one in step]
        assert len(steps) == -(-longest // layout.devices)
        for number, one in enumerate(flat):
            equal(one, np.arange(number, number + (number < mine)))

    def test_b69_make_dataset_iterator(self, layout: Layout) -> None:
        """Cut global batches behind an iterator that initialize() starts again."""
        size = layout.replicas
        with self.strategy(layout) as strategy:
            iterator = strategy.make_dataset_iterator(Dataset.range(2 * size).batch(size))
            for _ in range(2):
                assert iterator.initialize() == []
                steps = [
                    strategy.experimental_local_results(iterator.get_next()) for _ in range(2)
                ]
                _check(steps, [_pieces(layout, b) for b in np.arange(2 * size).reshape(2, size)])
                with pytest.raises(StopIteration):
                    iterator.get_next()

    def test_b69_what_cannot_be_cut_is_an_error(self, layout: Layout) -> None:
        """Refuse elements without rows, and say what to do."""
        if layout.replicas == 1:
            pytest.skip("one replica takes elements as they are")
        with self.strategy(layout) as strategy:
            iterator = strategy.make_dataset_iterator(Dataset.range(4))
            with pytest.raises(ValueError, match=r"call \.batch"):
                iterator.get_next()

    def test_b69_make_input_fn_iterator(self, layout: Layout) -> None:
        """Take per-replica batches from the data set that a function makes."""
        with self.strategy(layout) as strategy:
            iterator = strategy.make_input_fn_iterator(
                lambda context: (
                    Dataset.range(8 * layout.devices)
                    .batch(2)
                    .shard(2, context.input_pipeline_id % 2)
                )
            )
            iterator.initialize()
            (mine,) = {rank_in(layout) % 2}
            batches = np.arange(8 * layout.devices).reshape(-1, 2)[mine::2]
            step = strategy.experimental_local_results(iterator.get_next())
            _check([step], [list(batches[: layout.devices])])

    def test_b70_numpy_dataset(self, layout: Layout) -> None:
        """Make a data set of the rows of a nest of arrays, to be distributed."""
        x, y = np.arange(4.0 * layout.replicas), np.arange(4 * layout.replicas)
        with self.strategy(layout) as strategy:
            data = strategy.experimental_make_numpy_dataset((x, {"y": y}))
            assert len(list(data)) == len(x)
            (step,) = strategy.experimental_distribute_dataset(data.batch(len(x)))
            locals_ = strategy.experimental_local_results(step)
            _check([tuple(one[0] for one in locals_)], [_pieces(layout, x)])
            _check([tuple(one[1]["y"] for one in locals_)], [_pieces(layout, y)])

    def test_b70_lists_of_arrays_are_stacked(self, layout: Layout) -> None:
        """Stack a list, but refuse one inside a dict."""
        rows = [np.arange(2), np.arange(2) + 10]
        with self.strategy(layout) as strategy:
            equal(list(strategy.experimental_make_numpy_dataset(rows)), np.stack(rows))
            with pytest.raises(ValueError, match="list of arrays"):
                strategy.experimental_make_numpy_dataset({"x": rows})


def _split(strategy: Strategy, rows: Array, layout: Layout) -> Any:
    """Return one rank's rows as distributed values, so that they can be gathered."""
    pieces = iter(np.array_split(rows, layout.devices))
    return strategy.experimental_distribute_values_from_function(lambda _: next(pieces))
