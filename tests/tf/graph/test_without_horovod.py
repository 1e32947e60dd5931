"""Asking for Horovod where it is not installed says how to get it, on every rank."""

import pytest

pytest.importorskip("tensorflow")

import mpistrat
import mpistrat.tensorflow as distribute
from mpistrat.errors import BackendUnavailableError, UsageError
from mpistrat.tensorflow.graph.horovod import installed

pytestmark = [
    pytest.mark.mpi(ranks=2),
    pytest.mark.skipif(installed.why_not() is None, reason="Horovod is installed"),
]
HOW = "not installed.*mpistrat horovod build"


def test_the_cross_device_ops():
    with pytest.raises(BackendUnavailableError, match=HOW):
        distribute.HorovodAllReduce()


@pytest.mark.parametrize(
    "make", [mpistrat.MirroredStrategy, distribute.MultiWorkerMirroredStrategy]
)
def test_the_backend(make):
    with pytest.raises(BackendUnavailableError, match=HOW):
        make(backend="horovod")


def test_wrong_options():
    with pytest.raises(UsageError, match="cycle_time_ms=-1"):
        distribute.HorovodAllReduce(cycle_time_ms=-1)


def test_a_strategy_without_horovod_has_no_collectives_of_it():
    with (
        distribute.MirroredStrategy() as strategy,
        pytest.raises(UsageError, match="HorovodAllReduce"),
    ):
        distribute.HorovodCollectives(strategy)
