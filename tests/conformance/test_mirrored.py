"""MirroredStrategy keeps the contract, on every layout."""

import numpy as np
import pytest

from mpistrat import MirroredStrategy
from mpistrat.testing.layouts import LAYOUTS, Layout
from mpistrat.testing.rank import rank_from_environment
from mpistrat.testing.strategy_base import distribute, equal
from mpistrat.testing.strategy_config import ConfigConformance
from mpistrat.testing.strategy_examples import ExamplesConformance
from mpistrat.testing.strategy_gather import GatherConformance
from mpistrat.testing.strategy_input import InputConformance
from mpistrat.testing.strategy_reduce import ReduceConformance
from mpistrat.testing.strategy_run import RunConformance
from mpistrat.testing.strategy_scope import ScopeConformance
from mpistrat.testing.strategy_values import ValuesConformance


@pytest.mark.parametrize("layout", [Layout(1, 1), *LAYOUTS], ids=str)
class OnLayouts:
    def strategy(self, layout: Layout) -> MirroredStrategy:
        return MirroredStrategy(layout.device_names)


class TestReduce(OnLayouts, ReduceConformance):
    pass


class TestRun(OnLayouts, RunConformance):
    pass


class TestScope(OnLayouts, ScopeConformance):
    pass


class TestGather(OnLayouts, GatherConformance):
    pass


class TestValues(OnLayouts, ValuesConformance):
    pass


class TestInput(OnLayouts, InputConformance):
    pass


class TestConfig(OnLayouts, ConfigConformance):
    pass


class TestExamples(OnLayouts, ExamplesConformance):
    pass


@pytest.mark.mpi(ranks=[2, 3])
def test_ranks_may_have_different_numbers_of_devices() -> None:
    """Rank r has r + 1 replicas; the global ids count over the ranks."""
    rank = rank_from_environment()
    with MirroredStrategy([f"CPU:{i}" for i in range(rank + 1)]) as strategy:
        size = strategy.extended.communicator.size
        replicas = size * (size + 1) // 2
        assert strategy.num_replicas_in_sync == replicas
        ids = distribute(strategy, int)
        first = rank * (rank + 1) // 2
        assert ids.values == tuple(range(first, first + rank + 1))
        result = strategy.run(lambda x: np.array([x]), args=(ids,))
        equal(strategy.reduce("SUM", result, axis=None), np.array([sum(range(replicas))]))
        equal(strategy.gather(result, axis=0), np.arange(replicas))
        rows = np.arange(2 * replicas + 1)
        (step,) = strategy.experimental_distribute_dataset([rows])
        pieces = np.array_split(rows, replicas)[first : first + rank + 1]
        for one, piece in zip(strategy.experimental_local_results(step), pieces, strict=True):
            equal(one, piece)
