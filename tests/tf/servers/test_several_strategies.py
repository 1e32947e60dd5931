"""Several strategies over one resolver work on the same servers, until the last is closed."""

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from mpistrat.cluster_resolver import MPIClusterResolver  # noqa: E402
from mpistrat.errors import ClosedError  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

pytestmark = pytest.mark.mpi(ranks=[1, 3, 4] if with_all() else 4, timeout_s=60)


def value_of(strategy, x):
    twice = tf.function(lambda x: 2.0 * x)  # what was traced for one cluster is not for another
    found = strategy.coordinator.schedule(twice, (tf.constant(x),))
    strategy.coordinator.join()
    return found.fetch()


def on_chief(body):
    resolver = MPIClusterResolver(num_ps=1)
    if resolver.task_type == "chief":
        body(resolver)
    else:
        distribute.Server(resolver).join()


@takes_long()
def test_a_second_strategy_over_the_resolver():
    def chief(resolver):
        partitioner = distribute.experimental.partitioners.FixedShardsPartitioner(2)
        first = distribute.ParameterServerStrategy(resolver)
        with first.scope():
            mine = tf.Variable(3.0)
        assert value_of(first, 1.0) == 2.0
        second = distribute.ParameterServerStrategy(resolver, partitioner)
        third = distribute.ParameterServerStrategy(MPIClusterResolver(num_ps=1))
        with second.scope():
            other = tf.Variable([4.0, 5.0])
        assert [value_of(one, 3.0) for one in (first, second, third)] == [6.0] * 3
        mine.assign_add(1.0)
        assert mine.numpy() == 4.0
        assert tf.concat(other.variables, 0).numpy().tolist() == [4.0, 5.0]
        first.close()
        first.close()
        with refused(ClosedError, "was closed"):
            first.coordinator.schedule(tf.function(lambda: 1.0))
        assert value_of(second, 4.0) == 8.0
        with pytest.raises(KeyError), third:
            raise KeyError("what a program catches leaves the others open")
        assert value_of(second, 5.0) == 10.0
        second.close()

    on_chief(chief)


@takes_long()
def test_a_cluster_after_the_last_strategy_was_closed():
    for _ in range(2):

        def chief(resolver):
            with distribute.ParameterServerStrategy(resolver) as s:
                assert value_of(s, 1.0) == 2.0

        on_chief(chief)
