"""Central storage: mistakes of one rank are told on every rank, and change nothing."""

import threading

import numpy as np
import pytest

from helpers.mistakes import refused
from helpers.pretend.nodes import pretended_nodes
from helpers.strategy.central_storage import MEAN, SUM, communicator, made, tried
from mpistrat import CentralStorageStrategy, MirroredStrategy
from mpistrat.errors import (
    ArgumentTypeError,
    BackendUnavailableError,
    ClosedError,
    ClusterError,
    CommunicationError,
    ContextError,
    MismatchError,
    UsageError,
)

pytestmark = pytest.mark.mpi(ranks=[2, 3])


def usable(strategy):
    variable = made(strategy, 1.0, aggregation=SUM)
    strategy.run(lambda: variable.assign_add(1.0))
    assert float(variable) == 1 + strategy.num_replicas_in_sync


def test_on_several_nodes_it_is_refused_on_every_rank():
    with pretended_nodes(1):
        with refused(ClusterError, "on . nodes .*use MirroredStrategy or MultiWorkerMirrored"):
            CentralStorageStrategy()
        with MirroredStrategy() as strategy:
            assert strategy.reduce("SUM", 1.0, axis=None) == strategy.num_replicas_in_sync


def test_without_shared_memory_it_is_refused_on_every_rank():
    with refused(BackendUnavailableError, "'mpi' has no memory that ranks share.*MirroredStra"):
        CentralStorageStrategy(backend="mpi")


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (
            {"compute_devices": ["GPU:99"]},
            BackendUnavailableError,
            "need CuPy|can see|no GPU",
        ),
        ({"compute_devices": []}, UsageError, "names no device"),
        ({"parameter_device": "GPU:0"}, UsageError, "only a single replica"),
        ({"parameter_device": "here"}, UsageError, "'here' is no device"),
        ({"parameter_device": 3}, ArgumentTypeError, "device=3 is a int"),
    ],
)
def test_bad_arguments_of_one_rank(arguments, error, match):
    from mpi4py import MPI

    is_last = MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1
    with refused(error if is_last else MismatchError, match if is_last else error.__name__):
        CentralStorageStrategy(**arguments if is_last else {})
    with refused(error, match):
        CentralStorageStrategy(**arguments)


@pytest.mark.parametrize("value", [np.ones(5), "text", np.ones(4, complex)], ids=str)
@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_what_does_not_fit_on_one_rank_is_refused_across(method, value):
    with tried() as (strategy, variable, is_last):
        with refused(UsageError if is_last else MismatchError, f"{method} of"):
            getattr(variable, method)(value if is_last else np.ones(4))
        np.testing.assert_array_equal(variable.numpy(), np.arange(4.0))
        usable(strategy)


@pytest.mark.parametrize("value", [np.ones(5), "text", np.ones(4, np.float32)], ids=str)
def test_what_does_not_fit_on_one_rank_is_refused_in_replicas(value):
    with tried() as (strategy, variable, is_last):
        with refused((UsageError, MismatchError), "assign_add|float32"):
            strategy.run(lambda: variable.assign_add(value if is_last else np.ones(4)))
        np.testing.assert_array_equal(variable.numpy(), np.arange(4.0))


def test_integers_that_do_not_fit_change_no_element():
    """Only the rank that has the large element sees that it does not fit."""
    with CentralStorageStrategy() as strategy:
        count = strategy.num_replicas_in_sync
        variable = made(strategy, np.zeros(600_001, np.int32), aggregation=SUM)
        strategy.run(lambda: variable.assign_add(np.ones(variable.shape, np.int64)))
        assert (variable.value() == count).all()
    for size in (3, 600_001):
        value = np.ones(size, np.int64)
        value[-1] = 1 << 40
        with tried() as (strategy, _, is_last):
            small = made(strategy, np.zeros(size, np.int32), aggregation=SUM)
            with refused(UsageError if is_last else CommunicationError, "do not fit"):
                strategy.run(lambda v=small, value=value: v.assign(value))
            assert not small.value().any()


def test_without_a_rule_not_in_replicas():
    with tried() as (strategy, _, _):
        variable = made(strategy, 1.0)
        with refused(UsageError, "assign to central .*pass aggregation="):
            strategy.run(lambda: variable.assign(2.0))
        assert float(variable) == 1.0


def test_integers_have_no_mean_in_replicas():
    with tried() as (strategy, _, _):
        count = made(strategy, 0, aggregation=MEAN)
        with refused(UsageError, "the MEAN of integers is float64"):
            strategy.run(lambda: count.assign(4))
        count.assign(4)
        assert int(count) == 4


def test_ranks_that_change_different_variables():
    with tried() as (strategy, variable, is_last):
        other = made(strategy, np.arange(4.0))
        with refused(MismatchError, "(?s)to central variable 0.*to central variable 1"):
            (other if is_last else variable).assign(np.ones(4))
        with refused(MismatchError, "(?s)update of central variable 0.*SUM over"):
            if is_last:
                strategy.reduce("SUM", 1.0, axis=None)
            else:
                strategy.extended.update(variable, lambda v: v.assign(np.ones(4)))
        for one in (variable, other):
            np.testing.assert_array_equal(one.numpy(), np.arange(4.0))
        usable(strategy)


def test_ranks_that_make_different_variables():
    with tried() as (strategy, _, is_last):
        for options, match in (
            ({"initial_value": np.ones(2 + is_last)}, r"(?s)shape=\(2,\).*shape=\(3,\)"),
            ({"initial_value": np.ones(2, ["f4", "f8"][is_last])}, "(?s)float32.*float64"),
            ({"initial_value": np.ones(2 + is_last), "shape": (2,)}, "expected equal ones"),
            ({"initial_value": 1.0, "aggregation": SUM if is_last else MEAN}, "(?s)MEAN.*SUM"),
        ):
            kind = UsageError if "shape" in options and is_last else MismatchError
            with refused(kind, match):
                made(strategy, **{"value": options.pop("initial_value"), **options})
        usable(strategy)


def test_an_update_that_raises_does_so_on_every_rank():
    with tried() as (strategy, variable, _):
        is_first = communicator(strategy).rank == 0

        def fail(v):
            raise ValueError("cannot change it")

        with refused(ValueError if is_first else MismatchError, "cannot change it"):
            strategy.extended.update(variable, fail)
        with refused(ArgumentTypeError if is_first else MismatchError, "cannot be pickled"):
            strategy.extended.update(variable, lambda v: threading.Lock())
        usable(strategy)


def test_memory_is_handed_out_for_updates_only():
    with tried() as (strategy, variable, _):
        with pytest.raises(UsageError, match="which all ranks read in place; call it in the fun"):
            variable.live()
        with pytest.raises(ValueError, match="read-only"):
            variable.value()[0] = 1.0
        with MirroredStrategy() as other, refused(ContextError, "in a replica of <MirroredStr"):
            other.run(lambda: variable.assign(np.ones(4)))
        usable(strategy)


def test_closed():
    with CentralStorageStrategy() as strategy:
        variable = made(strategy, np.arange(3.0))
    np.testing.assert_array_equal(variable.numpy(), np.arange(3.0))
    with refused(ClosedError, "closed"):
        variable.assign(np.ones(3))
