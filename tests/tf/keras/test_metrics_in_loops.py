"""Metrics of a loop of one's own: made outside of the scope, a replica may not count in them."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)
METRICS = {
    "mean": lambda: (keras.metrics.Mean(name="outside"), 1),
    "of predictions": lambda: (keras.metrics.MeanAbsoluteError(name="outside"), 2),
    "with a matrix": lambda: (keras.metrics.AUC(name="outside"), 2),
}
STEPS = {
    "eager": lambda s, update: lambda: s.run(update),
    "graph": lambda s, update: tf.function(lambda: s.run(update)),
    "function": lambda s, update: lambda: s.run(tf.function(update)),
}


@takes_long()
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", METRICS)
def test_a_replica_does_not_count_in_a_metric_of_one_rank(kind, step):
    keras_dtype("float32")
    metric, number = METRICS[kind]()
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with refused(UsageError, "(?s)counts in 'outside/.*outside of the strategy's scope"):
            STEPS[step](s, lambda: metric.update_state(*[tf.ones([2])] * number))()
        total = s.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([])))
        assert total.numpy() == s.num_replicas_in_sync  # all ranks go on


@takes_long()
def test_metrics_that_count_all_rows():
    keras_dtype("float32")
    outside = keras.metrics.Mean()
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            inside = keras.metrics.Mean()
        rank, ranks = s.communicator.rank, s.communicator.size
        for step in STEPS.values():
            inside.reset_state()
            mine = tf.constant([float(rank)])
            step(s, lambda mine=mine: inside.update_state(mine))()
            outside.reset_state()
            outside.update_state(s.gather(s.run(lambda mine=mine: mine), axis=0))
            assert inside.result().numpy() == outside.result().numpy() == (ranks - 1) / 2


def test_one_rank_may_count_by_itself():
    """Its replicas are all that there are."""
    from mpi4py import MPI

    keras_dtype("float32")
    outside = keras.metrics.Mean()
    with distribute.MirroredStrategy(["CPU:0"], comm=MPI.COMM_SELF) as s:
        s.run(lambda: outside.update_state(np.float32(3.0)))
        assert outside.result().numpy() == 3.0
