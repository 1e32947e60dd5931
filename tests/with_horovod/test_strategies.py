"""Strategies whose values Horovod combines: eager code and graphs, on two and three ranks."""

import functools
import inspect
import re

import numpy as np
import pytest

pytest.importorskip("horovod.tensorflow")
pytest.importorskip("tensorflow")

import tensorflow as tf

import mpistrat.tensorflow as distribute
from helpers.tf.process import four_cpus
from mpistrat.errors import BackendUnavailableError, MismatchError
from mpistrat.testing.sets import repeats

pytestmark = [
    pytest.mark.mpi(ranks=[pytest.param(2, marks=repeats()), 3], timeout_s=60),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

four_cpus()

DTYPES = (
    *("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


def in_both(function):
    """Return what a function returns in eager code and in a graph."""
    return function(), tf.function(function)()


class Of:
    """A strategy with its rank, its size, and the records of its calls."""

    def __init__(self, strategy):
        self.strategy, bridge = strategy, strategy.extended.bridge
        self.rank, self.size = bridge.rank, bridge.size
        self.calls = strategy.communicator.records


def with_strategy(test):
    """Return a test that is given a strategy as its first argument."""

    def run(**arguments):
        ops = distribute.HorovodAllReduce()
        with distribute.MirroredStrategy(["CPU:0"], cross_device_ops=ops) as strategy:
            test(Of(strategy), **arguments)

    signature = inspect.signature(test)
    functools.update_wrapper(run, test).__signature__ = signature.replace(
        parameters=list(signature.parameters.values())[1:]
    )
    del run.__wrapped__
    return run


@with_strategy
def test_sums_and_gathers_of_every_dtype(made):
    everyone = [np.arange(6).reshape(2, 3) + rank for rank in range(made.size)]
    mine = everyone[made.rank]
    for dtype in map(tf.as_dtype, DTYPES):
        own = tf.cast(mine, dtype)
        total = sum(one.astype(bool if dtype == tf.bool else int) for one in everyone)
        gathered = tf.concat([tf.cast(one, dtype) for one in everyone], 1)
        for found in in_both(lambda own=own: made.strategy.reduce(SUM, own, axis=None)):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, tf.cast(total, dtype), dtype.name)
        for found in in_both(lambda own=own: made.strategy.gather(own, axis=1)):
            np.testing.assert_array_equal(found, gathered, dtype.name)


@with_strategy
def test_short_integers_wrap_as_they_do_alone(made):
    found = made.strategy.reduce(SUM, tf.constant([30000, -30000], tf.int16), axis=None)
    expected = (np.array([30000, -30000]) * made.size).astype(np.int16)
    np.testing.assert_array_equal(found, expected)


@with_strategy
def test_strings_go_by_the_own_backend(made):
    found = made.strategy.gather(tf.constant([f"rank {made.rank}"]), axis=0)
    assert found.numpy().tolist() == [f"rank {rank}".encode() for rank in range(made.size)]
    assert not any("Horovod" in (call.label or "") for call in made.calls()[-1:])


@with_strategy
def test_lists_are_grouped_by_dtype(made):
    own = [tf.fill([3], float(made.rank)), tf.fill([2], made.rank), tf.fill([1], 1.5)]

    def reduced():
        return made.strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(SUM, own))

    before = len(made.calls())
    total = made.size * (made.size - 1) / 2
    for found in in_both(reduced):
        np.testing.assert_array_equal(found[0], np.full(3, total, np.float32))
        np.testing.assert_array_equal(found[1], np.full(2, total, np.int32))
        np.testing.assert_array_equal(found[2], [1.5 * made.size])
    assert len(made.calls()) - before == 4  # of floats and of integers, twice


@with_strategy
def test_means_and_their_gradients(made):
    def gradient():
        x = tf.constant([1.0, 2.0]) * (made.rank + 1)
        with tf.GradientTape() as tape:
            tape.watch(x)
            context = tf.distribute.get_replica_context()
            loss = tf.reduce_sum(context.all_reduce(MEAN, x) ** 2)
        return tape.gradient(loss, x)

    mean = np.array([1.0, 2.0]) * np.mean(np.arange(made.size) + 1)
    for found in in_both(lambda: made.strategy.run(gradient)):
        np.testing.assert_allclose(found, 2 * mean, rtol=1e-6)


@with_strategy
def test_rows_of_sparse_gradients(made):
    def reduced():
        rows = tf.IndexedSlices(
            tf.fill([made.rank + 1, 2], 1.0), tf.range(made.rank + 1), tf.constant([4, 2])
        )
        return tf.convert_to_tensor(made.strategy.reduce(SUM, rows, axis=None))

    expected = np.repeat([[sum(i <= r for r in range(made.size))] for i in range(4)], 2, 1)
    for found in in_both(reduced):
        np.testing.assert_array_equal(found, expected)


@with_strategy
def test_loops_and_equal_calls_keep_their_number_and_order(made):
    """By themselves Horovod's operations are merged where they are equal, and dropped unused."""

    @tf.function
    def graph(x):
        first = made.strategy.reduce(SUM, x, axis=None)
        second = made.strategy.reduce(SUM, x, axis=None)
        made.strategy.reduce(SUM, x + 1, axis=None)  # nobody uses it
        total = tf.zeros([])
        for i in tf.range(3):
            total += made.strategy.reduce(SUM, tf.cast(i, tf.float32), axis=None)
        return first, second, total

    graph(tf.constant(1.0))
    before = len(made.calls())
    first, second, total = graph(tf.constant(2.0))
    assert len(made.calls()) - before == 6
    assert (float(first), float(second)) == (2.0 * made.size, 2.0 * made.size)
    assert float(total) == 3 * made.size


@with_strategy
def test_shapes_that_are_known_late(made):
    graph = tf.function(
        lambda x: made.strategy.reduce(SUM, x, axis=None),
        input_signature=[tf.TensorSpec([None, 2])],
    )
    for length in (3, 0, 5):
        found = graph(tf.ones([length, 2]))
        np.testing.assert_array_equal(found, np.full([length, 2], made.size))


@pytest.mark.parametrize("in_graph", [False, True])
@with_strategy
def test_mismatches_are_told_on_all_ranks(made, in_graph):
    def call(x):
        return made.strategy.reduce(SUM, x, axis=None)

    function = tf.function(call, reduce_retracing=False) if in_graph else call
    with pytest.raises(MismatchError, match=r"(?s)rank 0.*: .*shape=\(3,\).*by Horovod"):
        function(tf.ones([3 + (made.rank == 1)]))
    np.testing.assert_array_equal(function(tf.ones([3])), np.full(3, made.size))


@with_strategy
def test_xla_is_refused(made):
    graph = tf.function(lambda x: made.strategy.reduce(SUM, x, axis=None), jit_compile=True)
    with pytest.raises(NotImplementedError, match="which Horovod carries"):
        graph(tf.ones([3]))


@with_strategy
def test_an_error_elsewhere_in_the_graph_leaves_the_strategy_usable(made):
    @tf.function
    def graph(x):
        total = made.strategy.reduce(SUM, x, axis=None)
        tf.debugging.assert_less(x, 0.0, "no such x")
        return total

    with pytest.raises(tf.errors.InvalidArgumentError, match="no such x"):
        graph(tf.constant(1.0))
    assert float(made.strategy.reduce(SUM, tf.constant(1.0), axis=None)) == made.size


@with_strategy
def test_first_values_are_those_of_rank_0(made):
    with made.strategy.scope():
        variable = tf.Variable(tf.fill([3], float(made.rank)))
    np.testing.assert_array_equal(variable, np.zeros(3))
    assert re.search("by Horovod", str(made.calls()[-1].label))


@with_strategy
def test_mpi_goes_on_and_horovod_can_begin_again(made):
    from mpi4py import MPI

    made.strategy.close()
    assert not MPI.Is_finalized()
    assert MPI.COMM_WORLD.allreduce(1) == made.size
    with distribute.MultiWorkerMirroredStrategy(backend="horovod") as again:
        found = again.reduce(MEAN, tf.constant(float(made.rank)), axis=None)
        assert float(found) == (made.size - 1) / 2


def test_sub_communicators_are_process_sets():
    import horovod.tensorflow as hvd
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    half = world.Split(world.rank % 2)
    of_all = distribute.MirroredStrategy(["CPU:0"], backend="horovod")
    ops = distribute.HorovodAllReduce()
    part = distribute.MirroredStrategy(["CPU:0"], cross_device_ops=ops, comm=half)
    again = distribute.MirroredStrategy(["CPU:0"], cross_device_ops=ops, comm=half)
    graph = tf.function(lambda x: part.reduce(SUM, x, axis=None))
    members = [rank for rank in range(world.size) if rank % 2 == world.rank % 2]
    for found in (graph(tf.constant(1 << world.rank)), again.reduce(SUM, 1 << world.rank, None)):
        assert int(found) == sum(1 << rank for rank in members)
    with part.scope():
        assert tf.Variable(world.rank).numpy() == members[0]
    assert int(of_all.reduce(SUM, tf.constant(1), axis=None)) == world.size
    assert hvd.size() == world.size
    for strategy in (again, part, of_all):
        strategy.close()
    assert not hvd.is_initialized()
    # Now each half may begin it anew, for itself.
    with distribute.MirroredStrategy(["CPU:0"], backend="horovod", comm=half) as strategy:
        assert int(strategy.reduce(SUM, tf.constant(1), axis=None)) == len(members)
        assert (hvd.size() == len(members)) or half.size == 1
    half.Free()


def test_overlapping_ranks_are_refused_on_all_of_them():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    half = world.Split(world.rank > 0)
    first = distribute.MirroredStrategy(["CPU:0"], backend="horovod", comm=half)
    with pytest.raises(BackendUnavailableError, match="Horovod runs already"):
        distribute.MirroredStrategy(["CPU:0"], backend="horovod", comm=world)
    first.close()
    half.Free()


@with_strategy
def test_a_program_that_has_begun_horovod_itself_shares_it(made):
    import horovod.tensorflow as hvd

    made.strategy.close()
    hvd.init()
    with distribute.MirroredStrategy(["CPU:0"], backend="horovod") as strategy:
        assert int(strategy.reduce(SUM, tf.constant(1), axis=None)) == made.size
    assert int(hvd.allreduce(tf.constant(1), op=hvd.Sum)) == made.size
    hvd.shutdown()


def test_two_replicas_on_each_rank():
    ops = distribute.HorovodAllReduce(fusion_bytes=1 << 20, cycle_time_ms=0.5)
    with distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=ops) as strategy:
        number = strategy.num_replicas_in_sync

        @tf.function
        def step():
            def replica():
                context = tf.distribute.get_replica_context()
                mine = tf.cast(context.replica_id_in_sync_group, tf.float32)
                return context.all_reduce(SUM, [mine, tf.ones([2])])

            return strategy.run(replica)

        total, ones = (strategy.experimental_local_results(one) for one in step())
        assert [float(one) for one in total] == [number * (number - 1) / 2] * 2
        np.testing.assert_array_equal(ones[1], [number, number])
