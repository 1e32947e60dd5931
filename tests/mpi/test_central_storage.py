"""Variables that the ranks of a node have once: memory, order of reads and writes, mistakes."""

import copy
import gc
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mpistrat import (
    CentralStorageStrategy,
    IndexedSlices,
    MirroredStrategy,
    ShardedVariable,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    get_replica_context,
)
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
from mpistrat.optimizers import SGD
from mpistrat.testing.backends.pretending import pretended_nodes
from mpistrat.testing.mistakes import abandon, refused

pytestmark = pytest.mark.mpi(ranks=[2, 3])

NONE, SUM, MEAN, FIRST = VariableAggregation
# Some elements less than ranks; a short value; one of which each rank gets a share only.
SHAPES = [(), (2,), (5, 3), (0, 4), (3, 200_001)]


def made(strategy, value, **options):
    with strategy.scope():
        return Variable(value, **options)


def replica_id():
    return get_replica_context().replica_id_in_sync_group


def communicator(strategy):
    return strategy.extended.communicator


# ---------------------------------------------------------------------------------- the memory


def test_ranks_see_one_memory_and_copy_nothing():
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        variable = made(strategy, np.arange(6.0) + comm.rank)
        view = variable.value()
        assert np.shares_memory(view, strategy.run(variable.value))
        assert not view.flags.writeable
        strategy.extended.update(variable, lambda v: v.assign(np.arange(6.0) * 7))
        np.testing.assert_array_equal(view, np.arange(6.0) * 7)  # written by rank 0
        variable.numpy()[:] = -1
        np.testing.assert_array_equal(view, np.arange(6.0) * 7)
        comm.barrier()


def shared_bytes():
    """Return the bytes of shared memory that this process has; those of several count in part."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Shmem")) * 1024


def private_bytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon")) * 1024


def test_memory_is_there_once_and_given_back():
    nbytes = 48 << 20
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        made(strategy, 0.0)
        before = shared_bytes(), private_bytes()
        comm.barrier()
        variable = made(strategy, lambda: np.ones(nbytes // 8))
        assert float(variable.value().sum()) == nbytes // 8  # touches every page
        comm.barrier()
        after = shared_bytes(), private_bytes()
        comm.barrier()
        added = comm.allgather_object([b - a for a, b in zip(before, after, strict=True)])
        assert sum(shared for shared, _ in added) == pytest.approx(nbytes, rel=0.1)
        assert max(private for _, private in added) < nbytes // 4
        del variable
        gc.collect()
        comm.barrier()
        made(strategy, 0.0)  # it is given back when the next one is made
        comm.barrier()
        left = comm.allgather_object(shared_bytes() - before[0])
        assert sum(left) < nbytes // 4


# ---------------------------------------------------------------------------- what is assigned


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("devices", [1, 2])
def test_assignments_of_any_shape(shape, devices):
    with CentralStorageStrategy([f"CPU:{i}" for i in range(devices)]) as strategy:
        count = strategy.num_replicas_in_sync
        start = np.arange(float(np.prod(shape))).reshape(shape)
        total = count * (count + 1) / 2
        for aggregation, one in ((SUM, total), (MEAN, total / count), (FIRST, 1.0)):
            variable = made(strategy, start, aggregation=aggregation)

            def step(v=variable):
                delta = np.full(shape, replica_id() + 1.0)
                v.assign_add(delta)
                return v.assign_sub(delta * 3)

            assert strategy.run(step) is variable
            np.testing.assert_allclose(variable.numpy(), start - 2 * one, rtol=1e-15)
            variable.assign_add(np.full(shape, 0.5))
            np.testing.assert_allclose(variable.numpy(), start - 2 * one + 0.5, rtol=1e-15)
            strategy.run(lambda v=variable: v.assign(np.full(shape, replica_id() + 1.0)))
            np.testing.assert_allclose(variable.numpy(), np.full(shape, one), rtol=1e-15)


def test_ranks_with_unequal_numbers_of_replicas():
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    with CentralStorageStrategy([f"CPU:{i}" for i in range(rank + 1)]) as strategy:
        count = strategy.num_replicas_in_sync
        for size in (3, 900_001):
            variable = made(strategy, np.zeros(size), aggregation=MEAN)
            strategy.run(lambda v=variable: v.assign(np.full(v.shape, 1.0 * replica_id())))
            np.testing.assert_allclose(variable.numpy(), (count - 1) / 2, rtol=1e-15)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int32", "uint8", "bool"])
def test_other_types(name):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name, name))
    with CentralStorageStrategy() as strategy:
        count = strategy.num_replicas_in_sync
        for size in (5, 5_000_001):
            variable = made(strategy, np.zeros(size, dtype), aggregation=SUM)
            strategy.run(lambda v=variable: v.assign_add(np.ones(v.shape, v.dtype)))
            assert variable.dtype == dtype
            assert (variable.value() == np.ones(1, dtype) * (1 if name == "bool" else count)).all()


def test_values_that_are_the_variable_itself():
    with CentralStorageStrategy() as strategy:
        count = strategy.num_replicas_in_sync
        for size in (4, 700_001):
            start = np.arange(float(size))
            variable = made(strategy, start, aggregation=SUM)
            other = made(strategy, start * 10, aggregation=SUM)
            variable.assign(variable.value()[::-1])
            np.testing.assert_array_equal(variable.numpy(), start[::-1])
            strategy.run(lambda v=variable: v.assign(v.value()[::-1]))
            np.testing.assert_array_equal(variable.numpy(), start * count)
            strategy.run(lambda v=variable, w=other: v.assign_add(w))
            variable.assign_add(variable)
            np.testing.assert_array_equal(variable.numpy(), start * 22 * count)


def test_update_is_done_once_and_its_result_is_everywhere():
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        variable, other = made(strategy, np.ones(3)), made(strategy, 5.0)
        calls = []

        def change(v, delta, *, scale):
            calls.append(comm.rank)
            v.live()[...] += delta * scale
            strategy.extended.update(other, lambda o: o.assign_add(1.0))
            return {"v": v, "others": [other, 3], "array": v.value() + 0.5}

        result = strategy.extended.update(variable, change, (2.0,), {"scale": 2.0})
        assert calls == ([0] if comm.rank == 0 else [])
        assert result["v"] is variable
        assert result["others"] == [other, 3]
        np.testing.assert_array_equal(result["array"], np.full(3, 5.5))
        np.testing.assert_array_equal(variable.numpy(), np.full(3, 5.0))
        assert float(other) == 6.0
        assert strategy.extended.update(variable, lambda v: v, group=False) == (variable,)


def test_on_read_variables_have_a_copy_on_each_replica():
    with CentralStorageStrategy(["CPU:0", "CPU:1"]) as strategy:
        on_read = VariableSynchronization.ON_READ
        counter = made(strategy, 0, synchronization=on_read, aggregation=SUM)
        strategy.run(lambda: counter.assign_add(replica_id()) and None)
        mine = [int(one) for one in strategy.experimental_local_results(counter)]
        assert mine == [2 * communicator(strategy).rank, 2 * communicator(strategy).rank + 1]
        assert int(counter) == sum(range(strategy.num_replicas_in_sync))
        central = made(strategy, 0)
        central.assign(counter)
        assert int(central) == int(counter)


def test_scattered_rows():
    """Rank 0's rows count; in replicas there is no rule for them."""
    with CentralStorageStrategy() as strategy:
        rank = communicator(strategy).rank
        table = made(strategy, np.zeros((5, 2)))
        slices = IndexedSlices(np.full((3, 2), 1.0 + rank), [4, 0, 4], (5, 2))
        assert table.scatter_add(slices) is table
        np.testing.assert_array_equal(table.numpy()[:, 0], [1, 0, 0, 0, 2])
        strategy.extended.update(table, lambda one: one.scatter_sub(slices))
        assert not table.value().any()
        np.testing.assert_array_equal(table.sparse_read([4]), np.zeros((1, 2)))
        with tried() as (other, variable, _):
            with refused(UsageError, "scatter_mul to central variable .*gather the rows"):
                other.run(lambda: variable.scatter_mul(IndexedSlices(np.ones(1), [0])))
            with refused(UsageError, "no rows of it"):
                variable.scatter_max(IndexedSlices(np.ones(1), [9]))
            np.testing.assert_array_equal(variable.numpy(), np.arange(4.0))


def test_a_variable_in_parts():
    with CentralStorageStrategy() as strategy:
        whole = ShardedVariable(
            [made(strategy, np.zeros((3, 2))), made(strategy, np.ones((2, 2)))]
        )
        whole.assign_add(np.arange(10.0).reshape(5, 2))
        rows = IndexedSlices(np.ones((2, 2)), [4, 0])
        strategy.run(lambda: SGD(1.0).apply_gradients([(rows, whole)]))
        expected = np.arange(10.0).reshape(5, 2)
        expected[3:] += 1
        expected[[0, 4]] -= strategy.num_replicas_in_sync
        np.testing.assert_array_equal(whole.numpy(), expected)
        again = copy.deepcopy(whole)
        again.assign(expected * 2)
        np.testing.assert_array_equal(whole.numpy(), expected)


def test_deep_copies_are_variables_of_their_own():
    with CentralStorageStrategy() as strategy:
        variable = made(strategy, np.ones(3), aggregation=SUM, name="w")
        other = copy.deepcopy({"w": variable})["w"]
        strategy.run(lambda: other.assign_add(np.ones(3)))
        np.testing.assert_array_equal(variable.numpy(), np.ones(3))
        np.testing.assert_array_equal(
            other.numpy(), np.full(3, 1.0 + strategy.num_replicas_in_sync)
        )
        assert (other.name, other.aggregation) == ("w:0", SUM)


# --------------------------------------------------------------------------- reads and writes


def late(comm, step):
    """Let another rank be late in each step."""
    if step % comm.size == comm.rank:
        time.sleep(0.02)


@pytest.mark.parametrize("size", [1000, 800_000])
def test_no_rank_sees_what_is_half_written(size):
    """Ranks that are early wait before they write, and none goes on before all is written."""
    ways = {
        "across": lambda s, v, value: v.assign(value),
        "in replicas": lambda s, v, value: s.run(lambda: v.assign(value)),
        "updated": lambda s, v, value: s.extended.update(v, lambda one: one.assign(value)),
    }
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        for way in ways.values():
            variable = made(strategy, np.zeros(size), aggregation=MEAN)
            view = variable.value()
            for step in range(1, 3 * comm.size + 1):
                late(comm, step)
                assert (view == step - 1).all(), "written before all ranks were there"
                way(strategy, variable, np.full(size, float(step)))
                assert (view == step).all(), "left before all was written"


def test_an_update_that_takes_long_is_waited_for():
    with CentralStorageStrategy() as strategy:
        variable = made(strategy, np.zeros(10))

        def slowly(v):
            for i in range(10):
                v.live()[i] = 1.0
                time.sleep(0.01)

        strategy.extended.update(variable, slowly)
        assert (variable.value() == 1).all()


# ------------------------------------------------------------------------------------ mistakes


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
        ({"compute_devices": ["GPU:0"]}, BackendUnavailableError, "no backend for GPU"),
        ({"compute_devices": []}, UsageError, "names no device"),
        ({"parameter_device": "GPU:0"}, BackendUnavailableError, "no backend for GPU"),
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


@contextmanager
def tried():
    """Give a strategy, a variable of it, and whether this rank makes the mistake."""
    strategy = CentralStorageStrategy()
    try:
        comm = communicator(strategy)
        yield strategy, made(strategy, np.arange(4.0), aggregation=SUM), comm.rank == comm.size - 1
    finally:
        abandon(strategy)


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
