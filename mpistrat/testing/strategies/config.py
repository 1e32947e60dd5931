"""Conformance of resolver, configuration, copying and closing of a strategy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from mpistrat.strategy.base import Strategy
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.variables.base import Variable
from mpistrat.testing.layouts import Layout
from mpistrat.testing.strategies.base import (
    StrategyConformance,
    distribute,
    equal,
    local_ids,
    rank_in,
)

__all__ = ["ConfigConformance"]


class ConfigConformance(StrategyConformance):
    """The resolver, roles, members and end of a strategy.

    Attributes
    ----------
    resolver_class
        Class of ``cluster_resolver``; None for strategies without one.
    """

    resolver_class: type[Any] | None = None

    def test_b110_cluster_resolver(self, layout: Layout) -> None:
        """Have a resolver if the strategy is one for several workers, else None."""
        with self.strategy(layout) as strategy:
            if self.resolver_class is None:
                assert strategy.cluster_resolver is None
            else:
                assert isinstance(strategy.cluster_resolver, self.resolver_class)

    def test_b111_roles(self, layout: Layout) -> None:
        """Be the worker of this rank, in a cluster of all ranks."""
        if self.resolver_class is None:
            pytest.skip("a strategy without a resolver")
        with self.strategy(layout) as strategy:
            resolver = strategy.cluster_resolver
            assert (resolver.task_type, resolver.task_id) == ("worker", rank_in(layout))
            assert resolver.cluster_spec().num_tasks("worker") == layout.ranks

    def test_the_communicator_knows_this_rank(self, layout: Layout) -> None:
        """Have collectives between the ranks, which count each of them once."""
        with self.strategy(layout) as strategy:
            communicator = strategy.communicator
            assert communicator is strategy.extended.communicator
            is_alone = communicator.size == 1 < layout.ranks  # as OneDeviceStrategy
            assert communicator.rank == (0 if is_alone else rank_in(layout))
            assert communicator.allreduce(1) == communicator.size

    def test_b112_update_config_proto_copies(self, layout: Layout) -> None:
        """Return another object, and leave the one given alone."""
        proto = {"devices": ["CPU:0"]}
        with self.strategy(layout) as strategy:
            updated = strategy.update_config_proto(proto)
        assert updated is not proto
        updated["devices"].append("changed")
        assert proto == {"devices": ["CPU:0"]}

    def test_b113_initialize_and_finalize(self, layout: Layout) -> None:
        """Return lists of operations to run: none, since nothing is deferred."""
        with self.strategy(layout) as strategy:
            assert strategy.experimental_initialize() == []
            assert strategy.experimental_finalize() == []

    def test_members(self, layout: Layout) -> None:
        """Count the replicas, name the devices, show both."""
        with self.strategy(layout) as strategy:
            assert isinstance(strategy, Strategy)
            assert isinstance(strategy.extended, StrategyExtended)
            assert strategy.num_replicas_in_sync == layout.replicas
            devices = strategy.extended.worker_devices
            assert [name.rpartition("/")[2] for name in devices] == [
                f"device:CPU:{i}" for i in range(layout.devices)
            ]
            assert f"{layout.replicas} replicas" in repr(strategy)

    def test_deepcopy(self, layout: Layout) -> None:
        """Make a strategy of its own over the same replicas, also inside other objects."""
        with self.strategy(layout) as strategy:
            holder = copy.deepcopy({"one": strategy, "two": strategy})
            other = holder["one"]
            assert other is holder["two"]
            assert other is not strategy
            assert other.num_replicas_in_sync == layout.replicas
            with other.scope():
                variable = Variable(1.0)
            assert not strategy.extended.variable_created_in_scope(variable)
            equal(
                other.reduce("SUM", distribute(other, np.float64), axis=None),
                layout.replicas * (layout.replicas - 1) / 2,
            )

    def test_close(self, layout: Layout) -> None:
        """Refuse every call afterwards, but not a second close; variables can be read."""
        strategy = self.strategy(layout)
        with strategy.scope():
            variable = Variable(np.arange(2.0))
        value = distribute(strategy, np.float64)
        strategy.close()
        strategy.close()
        for call in (
            lambda: strategy.reduce("SUM", value, axis=None),
            lambda: strategy.gather(value, axis=0),
            lambda: strategy.run(lambda: None),
            lambda: strategy.scope().__enter__(),
            lambda: distribute(strategy, int),
            lambda: strategy.experimental_distribute_dataset(np.ones(4)),
        ):
            with pytest.raises(RuntimeError, match="closed"):
                call()
        equal(variable.numpy(), np.arange(2.0))
        assert strategy.experimental_local_results(value) == tuple(map(float, local_ids(layout)))
