"""Tests to inherit, of a strategy whose only replica and variables are on one GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from helpers.mistakes import replica
from helpers.strategy.central_storage import made
from helpers.strategy.training import MAKERS, STEPS, new_variables
from mpistrat.collectives.arrays import on_device
from mpistrat.errors import UsageError
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.central_storage.strategy import CentralStorageStrategy
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.replicas.replica_context import ReplicaContext
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.options import VariableAggregation, VariableSynchronization
from mpistrat.strategy.variables.sharded.embedding import embedding_lookup
from mpistrat.strategy.variables.sharded.variable import ShardedVariable
from mpistrat.train import Checkpoint

__all__ = ["OneGpuConformance", "host"]

TABLE = np.arange(10.0).reshape(5, 2)
SCATTERS = ["add", "sub", "mul", "div", "max", "min", "update"]


def host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array of the GPU on the host, or fail if it is not on the GPU."""
    found = on_device.to_host(array)
    assert found is not None, f"a {type(array).__name__}; expected an array on a GPU"
    return found


def nothing_is_carried() -> Any:
    """Let arrays that come to the host be an error in a block."""

    def refuse(value: Any) -> None:
        assert not on_device.is_elsewhere(value), "an array of a GPU was brought to the host"

    return patch.object(on_device, "to_host", refuse)


class OneGpuConformance:
    """Reads and changes where the variable is, the same numbers as on the host."""

    def strategy(self) -> Strategy:
        """Return a strategy of one replica on a GPU."""
        raise NotImplementedError

    def test_reading_copies_nothing(self) -> None:
        """What is read is the memory itself, and follows assignments."""
        strategy = self.strategy()
        v = made(strategy, TABLE)
        assert strategy.extended.parameter_devices == strategy.extended.worker_devices
        with nothing_is_carried():
            assert v.value() is v.value()
            assert strategy.run(v.value) is v.value()
            assert (v.shape, v.dtype, v.ndim, v.size) == ((5, 2), np.float64, 2, 10)
            other = v.read_value()
        v.assign_add(TABLE)
        assert host(v.value()).tolist() == (2 * TABLE).tolist()
        assert host(other).tolist() == TABLE.tolist()

    def test_it_is_an_array_there_and_a_number_here(self) -> None:
        """Rows and operators give arrays there; NumPy and numbers are had on the host."""
        strategy = self.strategy()
        v, n = made(strategy, TABLE), made(strategy, 3)
        rows = strategy.run(lambda: (v.sparse_read([[1], [4]]), embedding_lookup(v, [2])))
        assert [host(one).tolist() for one in rows] == [[[[2, 3]], [[8, 9]]], [[4, 5]]]
        found = [v * 2, 1 - v, v[1:3], np.sqrt(v)]
        expected = [TABLE * 2, 1 - TABLE, TABLE[1:3], np.sqrt(TABLE)]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(host(one), other)
        for array in (v.numpy(), np.asarray(v), strategy.run(v.numpy)):
            assert type(array) is np.ndarray
            np.testing.assert_array_equal(array, TABLE)
        assert (int(n), float(n), bool(n), [0, 1, 2, 3][n], f"{n:03d}") == (3, 3.0, True, 3, "003")
        assert "GPU:" in repr(v)

    @pytest.mark.parametrize("where", ["in run", "outside", "updating"])
    def test_values_of_both_sides_are_assigned(self, where: str) -> None:
        """Arrays of the host are carried; those of the GPU are not."""
        strategy = self.strategy()
        v = made(strategy, TABLE, aggregation=VariableAggregation.MEAN)

        def change(value: Any) -> None:
            if where == "in run":
                strategy.run(lambda: v.assign_sub(value))
            elif where == "outside":
                v.assign_sub(value)
            else:
                strategy.extended.update(v, lambda one, by: one.assign_sub(by), (value,))

        change(TABLE)
        change(strategy.run(lambda: v.value() * 0 + 1))
        with nothing_is_carried():
            change(v.read_value().astype(np.float32))
            v.assign_add(v)
        assert not v.numpy().any()

    def test_what_does_not_fit_is_refused(self) -> None:
        """Another shape, or a dtype that would lose more than precision."""
        strategy = self.strategy()
        v, n = made(strategy, TABLE), made(strategy, np.arange(2, dtype=np.int8))
        big = made(strategy, np.array([1, 300])).value()
        refused: list[tuple[Callable[[], Any], str]] = [
            (lambda: v.assign(n.value()), r"of shape \(2,\) to variable 'Variable:0' of shape"),
            (lambda: n.assign_add(big), "values do not fit into int8"),
            (lambda: n.assign_add(v[0]), "dtype int8: an array of float64 .* 'same_kind'"),
            (lambda: n.assign_add([1, 300]), "of dtype int8"),
            (lambda: v.scatter_add(IndexedSlices([[1.0, 1.0]], [5])), "no rows of it"),
        ]
        for change, words in refused:
            with pytest.raises(UsageError, match=words):
                change()
        assert (v.numpy().tolist(), n.numpy().tolist()) == (TABLE.tolist(), [0, 1])
        n.assign(made(strategy, np.array([7, -8])).value())
        assert n.numpy().tolist() == [7, -8]

    @pytest.mark.parametrize("method", SCATTERS)
    def test_rows_change_as_on_the_host(self, method: str) -> None:
        """A row that comes twice is changed twice."""
        slices = IndexedSlices(np.arange(1.0, 7.0).reshape(3, 2), [4, 1, 4])
        plain = Variable(TABLE)
        v = made(self.strategy(), TABLE)
        assert getattr(v, f"scatter_{method}")(slices) is v
        getattr(plain, f"scatter_{method}")(slices)
        np.testing.assert_array_equal(v.numpy(), plain.numpy())

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_optimizers_update_as_on_the_host(self, make: Any) -> None:
        """By gradients of all and of rows, and what is kept is there too."""
        strategy = self.strategy()
        random = np.random.default_rng(0)
        expected, optimizer, other = new_variables(), make(), make()
        with strategy.scope():
            found = new_variables()
        for _ in range(STEPS):
            dense = random.normal(size=4)
            rows = IndexedSlices(random.normal(size=(5, 2)), random.integers(0, 9, 5), (9, 2))
            other.apply_gradients(zip((dense, rows), expected, strict=True))
            there = made(strategy, dense).value()
            pairs = [*zip((there, rows), found, strict=True)]
            strategy.run(optimizer.apply_gradients, (pairs,))
        assert (optimizer.iterations, other.iterations) == (STEPS, STEPS)
        assert isinstance(optimizer.variables[0].value(), np.ndarray)  # the count, read each step
        mine, others = optimizer.variables[1:], other.variables[1:]
        kept = zip(found + mine, expected + others, strict=True)
        for one, on_host in kept:
            np.testing.assert_allclose(host(one.value()), on_host.numpy(), rtol=1e-12, atol=1e-15)

    @pytest.mark.parametrize("method", SCATTERS)
    def test_rows_by_indices_that_are_there(self, method: str) -> None:
        """As by those of the host; sums need nothing from the host."""
        strategy = self.strategy()
        plain, v = Variable(TABLE), made(strategy, TABLE)
        new, numbers = np.arange(1.0, 7.0).reshape(3, 2), np.array([4, 1, 4])
        slices = IndexedSlices(made(strategy, new).value(), made(strategy, numbers).value())
        with nothing_is_carried() if method in ("add", "sub") else nullcontext():
            getattr(v, f"scatter_{method}")(slices)
        getattr(plain, f"scatter_{method}")(IndexedSlices(new, numbers))
        np.testing.assert_array_equal(v.numpy(), plain.numpy())
        wrong = IndexedSlices(slices.values, slices.given_indices + 1)
        with pytest.raises(UsageError, match="2 of 3 indices are no rows of it, the first is 5"):
            getattr(v, f"scatter_{method}")(wrong)
        np.testing.assert_array_equal(v.numpy(), plain.numpy())

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_optimizers_take_indices_that_are_there(self, make: Any) -> None:
        """To the bits of those on the host; the values and indices stay there."""
        strategy = self.strategy()
        random = np.random.default_rng(0)
        tables = [made(strategy, TABLE), made(strategy, TABLE)]
        optimizers = [make(), make()]
        for optimizer, table in zip(optimizers, tables, strict=True):
            optimizer.build([table])
        for count in (5, 1, 5):
            new, numbers = random.normal(size=(count, 2)), random.integers(0, 5, count)
            there = IndexedSlices(made(strategy, new).value(), made(strategy, numbers).value())
            for optimizer, table, rows in zip(
                optimizers, tables, (IndexedSlices(new, numbers), there), strict=True
            ):
                with nothing_is_carried():
                    strategy.run(optimizer.apply_gradients, ([(rows, table)],))
        kept = [[one.numpy() for one in optimizer.variables] for optimizer in optimizers]
        found = [[table.numpy(), *some] for table, some in zip(tables, kept, strict=True)]
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_gradients_that_are_there_stay_there(self, make: Any) -> None:
        """A step computes on the GPU."""
        strategy = self.strategy()
        w, optimizer = made(strategy, np.ones(3, np.float32)), make()
        optimizer.build([w])
        gradient = strategy.run(lambda: w.value() * 0 + 1)
        with nothing_is_carried():
            strategy.run(lambda: optimizer.apply_gradients([(gradient, w)]))
        assert (w.numpy() < 1).all()

    def test_collectives_of_the_replica_return_arrays_there(self) -> None:
        """Across replicas, too."""
        strategy = self.strategy()
        v = made(strategy, TABLE)

        def replica_fn() -> Any:
            here: ReplicaContext = replica()
            return here.all_reduce("SUM", v.value()), here.all_gather(v.value(), axis=0)

        for one in strategy.run(replica_fn):
            np.testing.assert_array_equal(host(one), TABLE)
        total = strategy.reduce("SUM", v.value(), axis=0)
        assert host(total).tolist() == TABLE.sum(axis=0).tolist()

    def test_copies_that_are_combined_when_read_are_there(self) -> None:
        """ON_READ variables are on the GPU in the replica."""
        strategy = self.strategy()
        on_read, total = VariableSynchronization.ON_READ, VariableAggregation.SUM
        v = made(strategy, np.zeros(2), synchronization=on_read, aggregation=total)

        def replica_fn() -> Any:
            v.assign_add(v.value() + 1)
            return v.value(), v.numpy()

        found, copied = strategy.run(replica_fn)
        assert (host(found).tolist(), copied.tolist()) == ([1.0, 1.0], [1.0, 1.0])
        assert host(v.read_value()).tolist() == [1.0, 1.0]

    def test_parts_of_a_whole(self) -> None:
        """A ShardedVariable of variables on the GPU is read and changed there."""
        strategy = self.strategy()
        parts = [made(strategy, TABLE[:2]), made(strategy, TABLE[2:])]
        whole = ShardedVariable(parts)
        whole.assign(TABLE + 1)
        whole.scatter_add(IndexedSlices(np.ones((2, 2)), [0, 4]))
        assert whole.numpy().tolist() == [[2, 3], [3, 4], [5, 6], [7, 8], [10, 11]]
        found = [embedding_lookup(one, [4, 0, 2]) for one in (whole, parts)]
        assert [host(one).tolist() for one in found] == [[[10, 11], [2, 3], [5, 6]]] * 2

    @pytest.mark.parametrize("saves_there", [True, False])
    def test_checkpoints_go_to_the_host_and_back(self, saves_there: bool) -> None:
        """A file of either is restored by the other, which trains on alike."""
        strategies = [self.strategy(), CentralStorageStrategy(["CPU:0"])]
        one, other = strategies if saves_there else strategies[::-1]
        saved, restored = (_Trained(strategy) for strategy in (one, other))
        saved.step(one)
        with tempfile.TemporaryDirectory() as folder:
            path = Checkpoint(all=saved).write(Path(folder) / "one")
            Checkpoint(all=restored).read(path).assert_consumed()
        for strategy, trained in ((one, saved), (other, restored)):
            trained.step(strategy)
        np.testing.assert_array_equal(saved.weights.numpy(), restored.weights.numpy())
        np.testing.assert_array_equal(saved.total.numpy(), restored.total.numpy())
        assert (saved.optimizer.iterations, restored.optimizer.iterations) == (2, 2)


class _Trained:
    """Weights, what an optimizer keeps of them, and a sum of copies."""

    def __init__(self, strategy: Strategy) -> None:
        self.weights = made(strategy, np.ones((3, 2)))
        self.total = made(
            strategy,
            0.0,
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )
        self.optimizer = MAKERS["adam"]()
        self.optimizer.build([self.weights])

    def step(self, strategy: Strategy) -> None:
        """Update, and count."""

        def replica_fn() -> None:
            self.optimizer.apply_gradients([(self.weights.value() * 2, self.weights)])
            self.total.assign_add(1.0)

        strategy.run(replica_fn)
