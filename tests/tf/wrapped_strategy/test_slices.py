"""TensorFlow's own object, where each rank drives a slice: what it reduces and reads is of all."""

import tempfile
from contextlib import contextmanager

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.pretend.tpus import PretendResolver, initialized  # noqa: E402
from helpers.tf.cases import drop, mirrored_on  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat import TPUStrategy, errors  # noqa: E402 - TensorFlow may be missing
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

RANKS = pytest.mark.mpi(ranks=[1, 2, 3] if with_all() else [2], timeout_s=60)
OF_TPUS = ["tpu", "partitioned"] if with_all() else ["tpu"]  # whose variables are other classes
KINDS = pytest.mark.parametrize("kind", ["mirrored", *OF_TPUS])


def mirrored():
    return mirrored_on(["CPU:0"])


def partitioned():
    kind = tf.distribute.TPUStrategy
    return kind(PretendResolver(1), experimental_spmd_xla_partitioning=True)


@contextmanager
def slices(kind):
    """Yield a strategy with one replica on each rank."""
    if kind == "mirrored":
        with TFBackedStrategy(mirrored) as s:
            yield s
    elif kind == "tpu":
        with initialized((1, 1, 1, 1)), TPUStrategy(PretendResolver(1)) as s:
            yield s
    else:
        with initialized((1, 1, 1, 1)), TFBackedStrategy(partitioned) as s:
            yield s


@RANKS
@KINDS
def test_tensorflows_own_reductions_are_of_all_slices(kind):
    with slices(kind) as s:
        theirs, n = s.tf_strategy, s.communicator.size
        values = s.experimental_distribute_values_from_function(
            lambda context: tf.constant([1.0 + context.replica_id_in_sync_group])
        )
        total = n * (n + 1) // 2
        for reduced in (
            theirs.reduce("SUM", values, axis=None),
            theirs.extended.reduce_to("SUM", values, "CPU:0"),
            tf.function(lambda: theirs.reduce("SUM", values, axis=None))(),
            s.reduce("SUM", values, axis=None),
        ):
            assert reduced.numpy().tolist() == [total]
        assert theirs.reduce("MEAN", values, axis=None).numpy() == total / n
        assert theirs.gather(values, axis=0).numpy().tolist() == list(range(1, n + 1))


@RANKS
@KINDS
def test_variables_that_differ_are_read_over_all_slices(kind):
    aggregation = tf.VariableAggregation
    with slices(kind) as s, tempfile.TemporaryDirectory() as folder:
        n = s.communicator.size
        with s.tf_strategy.scope():
            found = {
                one: tf.Variable(
                    0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=one
                )
                for one in (aggregation.SUM, aggregation.MEAN, aggregation.ONLY_FIRST_REPLICA)
            }
            metric = keras.metrics.Mean()
        total = n * (n + 1) / 2
        for one, expected in zip(found.values(), (total, total / n, 1.0), strict=True):
            one.values[0].assign(s.communicator.rank + 1.0)

            def reads(one=one):
                return tf.stack([one.read_value(), one.value(), tf.identity(one)])

            assert reads().numpy().tolist() == [expected] * 3
            assert tf.function(reads)().numpy().tolist() == [expected] * 3
        metric.total.value.values[0].assign(s.communicator.rank + 1.0)
        metric.count.value.values[0].assign(1.0)
        assert float(metric.result()) == total / n
        summed = found[aggregation.SUM]
        prefix = tf.train.Checkpoint(summed=summed).write(f"{folder}/summed")
        for one in found.values():
            assert float(one.assign(3.0 * n)) == 3.0 * n
        assert float(summed.values[0]) == 3.0
        tf.train.Checkpoint(summed=summed).read(prefix).assert_consumed()
        assert float(summed.read_value()) == total


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=30)
@KINDS
def test_a_variable_that_one_slice_reads_alone(kind):
    with slices(kind) as s:
        with s.scope():
            metric = keras.metrics.Mean()
        calls = metric.result, lambda: s.tf_strategy.gather(tf.constant([1.0]), axis=0)
        with pytest.raises(errors.MismatchError, match="gather"):
            calls[s.communicator.rank]()
        drop(s)
