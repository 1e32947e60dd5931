"""Conformance of ``Strategy.run`` and its older names."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from mpistrat.data import Dataset
from mpistrat.strategy.context import (
    get_replica_context,
    get_strategy,
    in_cross_replica_context,
)
from mpistrat.strategy.input.input_context import RunOptions
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

__all__ = ["RunConformance"]


class Pair(NamedTuple):
    """A composite value; it stays what it is on its way into and out of a replica."""

    x: Any
    y: Any


def _context() -> ReplicaContext:
    """Return the context of the replica that runs."""
    replica = get_replica_context()
    assert replica is not None, "not in a replica"
    return replica


def _id() -> int:
    return _context().replica_id_in_sync_group


class RunConformance(StrategyConformance):
    """A function is called once for each replica."""

    def test_b20_each_replica_gets_its_component(self, layout: Layout) -> None:
        """Take distributed values apart; hand all else to every replica as it is."""
        plain = {"scale": 2.0}
        with self.strategy(layout) as strategy:

            def replica_fn(mine: float, shared: Any, *, offset: float, word: str) -> float:
                assert shared is plain["scale"]
                assert word == "ten"
                return mine * shared + offset

            result = strategy.run(
                replica_fn,
                args=(distribute(strategy, np.float64), plain["scale"]),
                kwargs={"offset": distribute(strategy, lambda i: 10.0 * i), "word": "ten"},
            )
            expected = tuple(12.0 * i for i in local_ids(layout))
            assert strategy.experimental_local_results(result) == expected

    def test_b20_nested_arguments(self, layout: Layout) -> None:
        """Find distributed values inside lists, dicts and tuples with names."""
        with self.strategy(layout) as strategy:
            value = distribute(strategy, np.float64)
            nest = [{"a": value, "b": 1}, Pair(value, (value, None))]

            def replica_fn(argument: Any) -> Any:
                record, pair = argument
                assert isinstance(pair, Pair)
                assert record == {"a": _id(), "b": 1}
                assert pair == Pair(_id(), (_id(), None))
                return pair

            result = strategy.run(replica_fn, args=(nest,))
            locals_ = strategy.experimental_local_results(result)
            assert locals_ == tuple(Pair(i, (i, None)) for i in local_ids(layout))

    def test_b20_arguments_must_be_a_tuple_or_list(self, layout: Layout) -> None:
        """Refuse an array in place of the tuple of arguments, before anything runs."""
        with self.strategy(layout) as strategy:
            with pytest.raises(TypeError, match="args must be a list or tuple"):
                strategy.run(lambda x: x, args=np.ones(2))  # type: ignore[arg-type]
            assert strategy.run(lambda x: x, args=[7]) == 7

    def test_b21_replica_context(self, layout: Layout) -> None:
        """Tell each replica who it is."""
        seen = []
        with self.strategy(layout) as strategy:

            def replica_fn() -> None:
                replica = _context()
                assert get_strategy() is strategy is replica.strategy
                assert not in_cross_replica_context()
                assert replica.num_replicas_in_sync == layout.replicas
                seen.append(replica.replica_id_in_sync_group)

            strategy.run(replica_fn)
            assert seen == local_ids(layout)

    @pytest.mark.parametrize("op", ["sum", "MEAN"])
    def test_b21_all_reduce(self, layout: Layout, op: str) -> None:
        """Combine the replicas' values in the middle of the function, nests too."""

        def make(replica: int) -> Any:
            return np.arange(3.0) + replica

        with self.strategy(layout) as strategy:

            def replica_fn(x: Any) -> Any:
                return _context().all_reduce(op, {"x": x, "one": np.float32(1)})

            total = sum(together(layout, make))
            scale = 1 if op == "sum" else 1 / layout.replicas
            result = strategy.run(replica_fn, args=(distribute(strategy, make),))
            for one in strategy.experimental_local_results(result):
                np.testing.assert_allclose(one["x"], total * scale, rtol=1e-15)
                equal(one["one"], np.float32(layout.replicas * scale))

    def test_b21_one_object_of_all_replicas_counts_for_each(self, layout: Layout) -> None:
        """Combine a constant, or an array from outside, as often as there are replicas."""
        shared = np.arange(2.0)
        with self.strategy(layout) as strategy:

            def replica_fn() -> Any:
                replica = _context()
                total = replica.all_reduce("sum", {"shared": shared, "one": 1, "id": _id()})
                return total, replica.all_reduce("mean", shared), replica.all_gather(shared, 0)

            ids = sum(range(layout.replicas))
            for one in strategy.experimental_local_results(strategy.run(replica_fn)):
                total, mean, gathered = one
                equal(total["shared"], shared * layout.replicas)
                equal((total["one"], total["id"]), np.array([layout.replicas, ids]))
                equal(mean, shared)
                equal(gathered, np.tile(shared, layout.replicas))

    def test_b21_an_error_of_all_reduce_can_be_caught(self, layout: Layout) -> None:
        """Raise it in every replica, where it may be caught; then go on together."""
        with self.strategy(layout) as strategy:

            def replica_fn() -> Any:
                with pytest.raises(ValueError, match="'PROD' is not a valid ReduceOp"):
                    _context().all_reduce("prod", 1.0)
                with pytest.raises(ValueError, match=r"different|shape"):
                    _context().all_reduce("sum", np.ones(1 + _id()))
                return _context().all_reduce("sum", 1.0)

            if layout.replicas == 1:
                pytest.skip("one replica agrees with itself")
            for one in strategy.experimental_local_results(strategy.run(replica_fn)):
                equal(one, np.float64(layout.replicas))

    def test_b21_replicas_own_what_all_reduce_returns(self, layout: Layout) -> None:
        """Give each replica an array of its own: writing into it shows nowhere else."""
        with self.strategy(layout) as strategy:

            def replica_fn() -> Any:
                total = _context().all_reduce("sum", np.ones(2))
                total += _id()
                return total

            result = strategy.run(replica_fn)
            for replica, one in zip(
                local_ids(layout), strategy.experimental_local_results(result), strict=True
            ):
                equal(one, np.full(2, 1.0 * layout.replicas + replica))

    def test_b21_merge_call(self, layout: Layout) -> None:
        """Run a function once across the replicas, with their values merged."""
        calls = []
        with self.strategy(layout) as strategy:

            def merge_fn(which: Any, value: Any, *, word: str) -> Any:
                assert which is strategy
                assert in_cross_replica_context()
                calls.append(word)
                return strategy.reduce("SUM", value, axis=None)

            def replica_fn(value: Any) -> Any:
                return _context().merge_call(merge_fn, args=(value,), kwargs={"word": "w"})

            result = strategy.run(replica_fn, args=(distribute(strategy, np.float64),))
            for one in strategy.experimental_local_results(result):
                equal(one, layout.replicas * (layout.replicas - 1) / 2)
        assert calls == ["w"]

    def test_b22_called_once_a_replica_every_time(self, layout: Layout) -> None:
        """Call a Python function anew for each replica and each run."""
        calls = []
        with self.strategy(layout) as strategy:
            for _ in range(3):
                strategy.run(lambda: calls.append(_id()))
        assert calls == local_ids(layout) * 3

    def test_b23_same_structure_with_values_by_replica(self, layout: Layout) -> None:
        """Merge the results leaf by leaf; bare on a rank with one replica."""
        with self.strategy(layout) as strategy:
            result = strategy.run(lambda: {"a": np.float64(_id()), "b": (f"r{_id()}", None)})
            assert set(result) == {"a", "b"}
            assert isinstance(result["b"], tuple)
            assert result["b"][1] is None
            for leaf, make in ((result["a"], np.float64), (result["b"][0], "r{}".format)):
                expected = tuple(make(i) for i in local_ids(layout))
                if layout.devices > 1:
                    assert isinstance(leaf, PerReplica)
                    assert leaf.values == expected
                else:
                    assert leaf == expected[0]

    def test_b23_one_object_on_all_replicas_stays_bare(self, layout: Layout) -> None:
        """Return what all replicas return alike without a wrapper: None, words, any object."""
        thing = object()
        with self.strategy(layout) as strategy:
            assert strategy.run(lambda: thing) is thing
            assert strategy.run(lambda: None) is None
            assert strategy.run(lambda: ("word", thing)) == ("word", thing)

    def test_b23_variables_come_back_as_they_are(self, layout: Layout) -> None:
        """Return the distributed variable where each replica returns its copy: it is in sync."""
        with self.strategy(layout) as strategy:
            with strategy.scope():
                variable = Variable(1.0)
            assert strategy.run(lambda: variable) is variable
            assert strategy.run(lambda v: v, args=(variable,)) is variable

    def test_b23_structures_must_be_equal(self, layout: Layout) -> None:
        """Refuse to merge different structures."""
        if layout.devices == 1:
            pytest.skip("nothing to merge on a rank with one replica")
        with self.strategy(layout) as strategy, pytest.raises(ValueError, match="same structure"):
            strategy.run(lambda: [0] * (_id() % layout.devices))

    def test_b25_options(self, layout: Layout) -> None:
        """Accept TensorFlow's options."""
        with self.strategy(layout) as strategy:
            options = RunOptions(experimental_enable_dynamic_batch_size=False)
            assert strategy.run(lambda x: x, args=("x",), options=options) == "x"

    def test_b26_experimental_run_takes_one_input_a_call(self, layout: Layout) -> None:
        """Get the next input from the iterator, a different one for each replica."""
        with self.strategy(layout) as strategy:
            rows = np.arange(3.0 * layout.replicas)
            iterator = strategy.make_dataset_iterator(
                Dataset.from_tensor_slices(rows).batch(layout.replicas)
            )
            iterator.initialize()
            for step in range(3):
                result = strategy.experimental_run(lambda x: x + 0.5, iterator)
                expected = [
                    np.array([step * layout.replicas + i + 0.5]) for i in local_ids(layout)
                ]
                equal(strategy.experimental_local_results(result), expected)

    def test_b26_experimental_run_without_input(self, layout: Layout) -> None:
        """Call the function without arguments."""
        with self.strategy(layout) as strategy:
            result = strategy.experimental_run(_id)
            assert strategy.experimental_local_results(result) == tuple(local_ids(layout))

    def test_b26_experimental_run_v2(self, layout: Layout) -> None:
        """Do what run does."""
        with self.strategy(layout) as strategy:
            result = strategy.experimental_run_v2(
                lambda x, y: x + y, args=(distribute(strategy, int),), kwargs={"y": 100}
            )
            expected = tuple(100 + i for i in local_ids(layout))
            assert strategy.experimental_local_results(result) == expected
