"""OneDeviceStrategy, and the strategy outside of all scopes, keep the contract on one replica."""

import numpy as np
import pytest

from mpistrat import (
    MirroredStrategy,
    OneDeviceStrategy,
    Variable,
    get_replica_context,
    get_strategy,
)
from mpistrat.testing.layouts import Layout
from mpistrat.testing.sets import takes_long
from mpistrat.testing.strategies.base import equal
from mpistrat.testing.strategies.config import ConfigConformance
from mpistrat.testing.strategies.examples import ExamplesConformance
from mpistrat.testing.strategies.extended import ExtendedConformance
from mpistrat.testing.strategies.gather import GatherConformance
from mpistrat.testing.strategies.input import InputConformance
from mpistrat.testing.strategies.reduce import ReduceConformance
from mpistrat.testing.strategies.run import RunConformance
from mpistrat.testing.strategies.scope import ScopeConformance
from mpistrat.testing.strategies.values import ValuesConformance

ONE = Layout(1, 1)


@pytest.mark.parametrize("layout", [ONE], ids=str)
class OneDevice:
    mirrors_variables = False

    def strategy(self, layout: Layout) -> OneDeviceStrategy:
        return OneDeviceStrategy("CPU:0")


class TestReduce(OneDevice, ReduceConformance):
    pass


class TestRun(OneDevice, RunConformance):
    pass


class TestScope(OneDevice, ScopeConformance):
    pass


class TestGather(OneDevice, GatherConformance):
    pass


class TestValues(OneDevice, ValuesConformance):
    pass


class TestInput(OneDevice, InputConformance):
    pass


class TestExtended(OneDevice, ExtendedConformance):
    pass


class TestExamples(OneDevice, ExamplesConformance):
    pass


class TestConfig(OneDevice, ConfigConformance):
    pass


@pytest.mark.parametrize("layout", [ONE], ids=str)
class Default:
    """The default strategy cannot be closed, so its own tests are a part only."""

    mirrors_variables = False

    def strategy(self, layout: Layout):
        return get_strategy()


class TestDefaultReduce(Default, ReduceConformance):
    pass


class TestDefaultRun(Default, RunConformance):
    pass


class TestDefaultGather(Default, GatherConformance):
    pass


class TestDefaultValues(Default, ValuesConformance):
    pass


class TestDefaultInput(Default, InputConformance):
    pass


class TestDefaultExamples(Default, ExamplesConformance):
    pass


def test_b01_default_is_a_replica_context_of_its_own() -> None:
    replica = get_replica_context()
    assert replica is not None
    assert replica.num_replicas_in_sync == 1
    assert replica.strategy is get_strategy()
    equal(replica.all_reduce("sum", np.arange(3.0)), np.arange(3.0))


def test_b05_default_makes_plain_variables() -> None:
    with get_strategy().scope():
        assert type(Variable(1.0)) is Variable


def test_close_leaves_the_default_strategy_open() -> None:
    get_strategy().close()
    equal(get_strategy().reduce("SUM", 2.0, axis=None), 2.0)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3])
def test_one_device_has_nothing_to_do_with_other_ranks() -> None:
    with MirroredStrategy() as everyone, OneDeviceStrategy("CPU:0") as alone:
        rank = everyone.extended.communicator.rank
        assert alone.num_replicas_in_sync == 1
        for _ in range(rank):  # not the same number of calls on every rank
            equal(alone.reduce("SUM", 1.0 + rank, axis=None), 1.0 + rank)
        with alone.scope():
            assert float(Variable(float(rank))) == rank


@pytest.mark.parametrize(
    "device", ["", "TPU:0", "CPU", "CPU:x", "/job:worker/task:5/device:CPU:0"]
)
def test_devices_must_exist(device: str) -> None:
    with pytest.raises(ValueError, match="device="):
        OneDeviceStrategy(device)


def test_default_extended_as_tensorflows() -> None:
    """What no other strategy made is the default one's, and it colocates with anything."""
    default, one = get_strategy(), OneDeviceStrategy("CPU:0")
    plain = Variable(1.0)
    with one.scope():
        other = Variable(1.0)
    assert default.extended.variable_created_in_scope(plain)
    assert not default.extended.variable_created_in_scope(other)
    assert one.extended.variable_created_in_scope(other)
    assert not one.extended.variable_created_in_scope(plain)
    with default.extended.colocate_vars_with(other):
        assert default.extended.variable_created_in_scope(Variable(2.0))
    assert len(default.extended.worker_devices) == 1
    assert default.extended.update(plain, lambda v: v.assign_add(1.0), group=False) == (2.0,)
    assert default.extended.value_container(plain) is plain
