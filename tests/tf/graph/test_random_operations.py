"""Random operations with a global seed: other numbers in each replica, the same in each run."""

import itertools

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)
MAKERS = {
    "one device": lambda: distribute.MirroredStrategy(["CPU:0"]),
    "two devices": lambda: distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    "central": lambda: distribute.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"),
}
OPERATIONS = {
    "normal": lambda: tf.random.normal([20]),
    "uniform": lambda: tf.random.uniform([20]),
    "dropout": lambda: tf.nn.dropout(tf.ones([64]), 0.5),
    "shuffle": lambda: tf.random.shuffle(tf.range(20)),
}
WAYS = {
    "eager": lambda s, fn: s.run(fn),
    "graph": lambda s, fn: tf.function(lambda: s.run(fn))(),
    "function": lambda s, fn: s.run(tf.function(fn)),
}


def of_all(s, value):
    """Return the numbers of each replica on all ranks."""
    mine = [one.numpy().tolist() for one in s.experimental_local_results(value)]
    return [*itertools.chain(*s.communicator.allgather_object(mine))]


@takes_long()
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", MAKERS)
def test_they_differ_by_replica(kind, way):
    with MAKERS[kind]() as s:
        runs = []
        for _ in range(2):
            keras.utils.set_random_seed(7)
            runs.append({name: of_all(s, WAYS[way](s, fn)) for name, fn in OPERATIONS.items()})
        assert runs[0] == runs[1]
        for name, replicas in runs[0].items():
            assert len(replicas) == s.num_replicas_in_sync
            assert len({*map(tuple, replicas)}) == s.num_replicas_in_sync, name


def test_what_ranks_have_in_common_stays_so():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        tf.random.set_seed(3)
        with s.scope():
            variable = tf.Variable(tf.random.normal([4]))
        lazy = []

        def with_variable():
            if not lazy:
                lazy.append(tf.Variable(lambda: tf.random.normal([4])))
            return tf.identity(lazy[0])

        shuffled = s.run(lambda: next(iter(tf.data.Dataset.range(50).shuffle(50).batch(50))))
        alike = {
            "outside of replicas": tf.random.normal([4]),
            "variable": variable,
            "variable of a replica": s.run(with_variable),
            "seed of its own": s.run(lambda: tf.random.normal([4], seed=5)),
            "data set": shuffled,
        }
        for name, value in alike.items():
            assert len({*map(tuple, of_all(s, value))}) == 1, name
