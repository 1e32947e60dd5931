"""Ranks that made different data, of which each takes its share: an error, not lost rows."""

import contextlib
import random as python_random
import time

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - it comes with TensorFlow

import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.tensorflow.data import sharding  # noqa: E402
from mpistrat.tensorflow.graph import digest_op  # noqa: E402
from mpistrat.tensorflow.private import data as private_data  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=90)
COUNT = 48
X = np.random.default_rng(0).normal(size=(COUNT, 5)).astype("float32")
Y = np.arange(COUNT, dtype="float32")
SPECS = (tf.TensorSpec([5]), tf.TensorSpec([]))
Dataset = tf.data.Dataset


TRACED = ("a generator", "a data set of rows", "a shuffled data set")


@contextlib.contextmanager
def compiled(what=TRACED[0]):
    """Give a strategy, a model, and what shuffles otherwise on each rank.

    Its steps are traced for some kinds of data; for the others, whose pipelines alone differ, it
    is spared.
    """
    assert digest_op.is_available()  # compiled before the time is taken
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse", run_eagerly=what not in TRACED)
        yield s, model, np.random.default_rng(s.communicator.rank)
    drop(s)


class Shuffling(keras.utils.PyDataset):
    def __init__(self, random, augments=False, workers=1):
        super().__init__(workers=workers)
        self.order = np.arange(COUNT) if augments else random.permutation(COUNT)
        self.random, self.augments, self.batches = random, augments, 0

    def __len__(self):
        return 6

    def __getitem__(self, index):
        self.batches += 1
        rows = self.order[index * 8 : index * 8 + 8]
        noise = self.random.normal(size=(8, 5)) if self.augments else 0
        return X[rows] + noise, Y[rows]


def generator(random, rows=True):
    def generate():
        for index in random.permutation(COUNT):
            yield X[index], Y[index]

    def batches():
        order = random.permutation(COUNT).reshape(6, 8)
        yield from ((X[rows], Y[rows]) for rows in order)

    return generate if rows else batches()


def from_generator(random):
    return Dataset.from_generator(generator(random), output_signature=SPECS)


def kept(random):
    """Return a data set in which ranks leave out different rows."""
    order = random.permutation(COUNT)[:40]
    return Dataset.from_tensor_slices((X[order], Y[order])).batch(8)


def swapped(index, row):
    return row, index


DIFFERENT = {
    "arrays": lambda random: (X[order := random.permutation(COUNT)], Y[order]),
    "a split": lambda random: (X[order := random.permutation(COUNT)[:40]], Y[order]),
    "tensors": lambda random: (tf.constant(random.permutation(X)), tf.constant(Y)),
    "a PyDataset": lambda random: (Shuffling(random),),
    "a generator": lambda random: (generator(random, rows=False),),
    "a data set of a generator": lambda random: (from_generator(random).batch(8),),
    "a data set of rows": lambda random: (kept(random),),
    "one component": lambda random: (Dataset.from_tensor_slices(random.permutation(X)).batch(8),),
    "sparse": lambda random: (
        Dataset.from_tensor_slices(tf.sparse.from_dense(random.permutation(X))).batch(8),
    ),
    "ragged": lambda random: (
        Dataset.from_tensor_slices(tf.RaggedTensor.from_tensor(random.permutation(X))).batch(8),
    ),
    "beside an index": lambda random: (
        Dataset.from_tensor_slices(random.permutation(X)).enumerate().map(swapped).batch(8),
    ),
    "a data set with chance": lambda random: (
        from_generator(random)
        .map(lambda x, y: (x + tf.random.normal([5]), tf.cast(y, tf.int32)))
        .batch(8),
    ),
}
USES = {
    "fit": lambda model, data: model.fit(*data, verbose=0, shuffle=False),
    "evaluate": lambda model, data: model.evaluate(*data, verbose=0),
    "predict": lambda model, data: model.predict(data[0], verbose=0),
}
NO_TARGETS = ("one component", "beside an index")  # so not for fit and evaluate


RAW = ("sparse", "ragged")  # which the model does not take: only distributed


@takes_long()
@pytest.mark.parametrize("what", RAW)
def test_composites_in_another_order(what):
    with compiled() as (s, _, random):
        (dataset,) = DIFFERENT[what](random)
        with refused(UsageError, "different data"):
            for _ in s.experimental_distribute_dataset(dataset):
                pass


def is_tried(what, use):
    """Tell whether a pair is: uses differ in who compares, and kinds in how data are read."""
    if what in RAW or (what in NO_TARGETS and use != "predict"):
        return False
    return with_all() or use == "fit" or what in (*TRACED, *NO_TARGETS, "arrays")


@takes_long()
@pytest.mark.parametrize(
    ("what", "use"), [(what, use) for what in DIFFERENT for use in USES if is_tried(what, use)]
)
def test_different_data_are_refused(what, use):
    with compiled(what) as (_, model, random):
        # Of a generator, which is read once, ranks may have read unequally far ahead to build.
        found = (
            r"(different data: batch 0|array 0 of the data is not the same|batches of the data)"
        )
        text = rf"(?s){found}.*random_state.*MPISTRAT_CHECKS"
        with refused(UsageError, text):
            USES[use](model, DIFFERENT[what](random))


SAME = {
    "a PyDataset that augments": lambda random: (Shuffling(random, augments=True),),
    "chance in rows": lambda random: (
        Dataset.from_tensor_slices((X, Y))
        .map(lambda x, y: (x + tf.random.normal([5]), y))
        .batch(8),
    ),
    "chance in one component": lambda random: (
        Dataset.from_tensor_slices(X).map(lambda x: x + tf.random.normal([5])).batch(8),
    ),
    "layers of Keras": lambda random: (
        Dataset.from_tensor_slices((X, Y)).batch(8).map(lambda x, y: (NOISE(x, training=True), y)),
    ),
    "a generator with a seed": lambda random: (from_generator(np.random.default_rng(3)).batch(8),),
    "a shuffled data set": lambda random: (
        Dataset.from_tensor_slices((X, Y)).shuffle(COUNT).batch(8),
    ),
    "arrays": lambda random: (X, Y),
    "arrays that are rounded otherwise": lambda random: (X + eps(random), Y + eps(random)),
    "rows that are rounded otherwise": lambda random: (
        Dataset.from_tensor_slices((X + eps(random), Y + eps(random))).batch(8),
    ),
    "ragged": lambda random: (tf.RaggedTensor.from_tensor(X).to_tensor(), Y),
}


def eps(random):
    return np.float32(random.uniform(0, 1e-6))


NOISE = keras.layers.GaussianNoise(1.0)


@takes_long()
@pytest.mark.parametrize("what", SAME)
def test_data_whose_order_is_the_same_are_not(what):
    with compiled(what) as (s, model, _):
        random = np.random.default_rng(s.communicator.rank)
        data = SAME[what](random)
        model.predict(data[0], verbose=0)
        if what != "chance in one component":
            model.fit(*data, epochs=2, verbose=0)
            if with_all() or what in TRACED:
                model.evaluate(*data, verbose=0)


@takes_long()
@pytest.mark.parametrize("workers", [1, 2])
def test_batches_that_keras_shuffles_come_in_one_order(workers):
    python_random.seed()
    with compiled() as (s, model, random):
        data = Shuffling(random, augments=True, workers=workers)
        model.fit(data, epochs=3, verbose=0)
        assert data.batches >= 3 * 6
    drop(s)


def test_a_loop_of_ones_own_is_told_at_its_end():
    with compiled() as (s, _, random):
        steps = s.experimental_distribute_dataset(from_generator(random).batch(8))
        number = 0
        with refused(UsageError, "different data: batch 0 is not the same on rank 1"):
            for _ in steps:
                number += 1
        assert number == 6


@takes_long()
def test_loops_over_one_data_set_in_each_other():
    """An inner loop may be left at any batch, which ranks have read ahead of by chance."""
    with compiled() as (s, _, _):
        steps = s.experimental_distribute_dataset(from_generator(random_0()).batch(8))
        for _ in range(3):
            kept = iter(steps)
            next(kept)
            for _ in steps:
                for _ in steps:
                    break
            assert sum(1 for _ in kept) == 5


def random_0():
    return np.random.default_rng(0)


@takes_long()
def test_a_loop_in_a_function_is_told_when_that_ends():
    with compiled() as (s, _, random):
        steps = s.experimental_distribute_dataset(from_generator(random).batch(8))
        same = s.experimental_distribute_dataset(from_generator(np.random.default_rng(0)).batch(8))

        @tf.function
        def count(steps):
            number = 0
            for _ in steps:
                number += 1
            return number

        assert count(same) == 6
        for _ in range(2):
            with refused(UsageError, "different data: batch 0"):
                count(steps)
            count(same)


@takes_long()
def test_sources_that_are_read_as_they_come():
    """Of two sources the one that is slow here is the fast one there."""
    with compiled() as (s, model, _):
        slow = s.communicator.rank % 2

        def read(source):
            def wait(row):
                time.sleep(0.02 if source == slow else 0)
                return np.float32(100 * source + row)

            def rows(row):
                found = tf.numpy_function(wait, [row], tf.float32)
                return tf.fill([5], found), found

            return Dataset.range(24).map(rows)

        def both(deterministic):
            return Dataset.from_tensor_slices([0, 1]).interleave(
                lambda source: tf.switch_case(source, [lambda: read(0), lambda: read(1)]),
                num_parallel_calls=2,
                deterministic=deterministic,
            )

        shapes = SPECS[0].shape, SPECS[1].shape
        for deterministic in (True, False):
            data = both(deterministic).map(
                lambda x, y: (tf.ensure_shape(x, shapes[0]), tf.ensure_shape(y, shapes[1]))
            )
            refusal = refused(UsageError, "different data.*deterministic=True")
            with contextlib.nullcontext() if deterministic else refusal:
                model.fit(data.batch(8), verbose=0)


@takes_long()
def test_the_batch_where_orders_part_is_named():
    with compiled() as (s, model, _):
        order = np.arange(COUNT)
        if s.communicator.rank == s.communicator.size - 1:
            order[20:22] = 21, 20
        data = Dataset.from_tensor_slices((X[order], Y[order])).batch(8)
        with refused(UsageError, rf"batch 2 .* rank {s.communicator.size - 1} .*the 2 before"):
            model.fit(data, verbose=0)


@takes_long()
def test_unequal_numbers_of_batches():
    with compiled() as (s, model, _):
        count = 24 + 8 * (s.communicator.rank == 1)
        data = Dataset.from_tensor_slices((X[:count], Y[:count])).batch(8)
        with refused(UsageError, r"batches of the data set by rank: \[3, 4"):
            model.fit(data.filter(lambda x, y: True), verbose=0)


@takes_long()
def test_a_long_pass_is_compared_before_its_end():
    with compiled() as (_, model, random):
        model.fit(X, Y, verbose=0)  # which builds it, so that no pass is begun for that
        data = from_generator(random).batch(1)
        seen = []
        note = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(batch)
        )
        with refused(UsageError, "different data"):
            model.fit(data, verbose=0, callbacks=[note])
        assert len(seen) == 16


@takes_long()
def test_endless_data_may_differ():
    with compiled() as (s, model, _):
        rows = Dataset.from_tensor_slices((X, Y)).shuffle(COUNT, seed=s.communicator.rank)
        model.fit(rows.repeat().batch(8), steps_per_epoch=20, verbose=0)
        endless = s.experimental_distribute_dataset(rows.repeat().batch(8, drop_remainder=True))
        before = s.communicator.call_log.sequence
        if s.is_chief:  # who may look at it alone
            next(iter(endless))
        assert s.communicator.call_log.sequence == before


def test_elements_and_lengths_are_as_before():
    with compiled() as (s, _, _):
        rows = Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x, None, {"y": y})).batch(8)
        found = s.experimental_distribute_dataset(rows)
        assert found.cardinality == 6
        assert sum(1 for _ in found) == 6


def local(s, value):
    return [row for part in s.experimental_local_results(value) for row in part.numpy().tolist()]


@takes_long()
def test_batches_are_divided_as_if_they_were_not_compared():
    """The last batch is shorter, so that TensorFlow finds their size in the data set's graph."""
    with compiled() as (s, _, _):
        data = Dataset.from_tensor_slices(Y[:20]).batch(7)
        with sharding.not_compared():
            expected = s.experimental_distribute_dataset(data)
        found = s.experimental_distribute_dataset(data)
        shares = [[local(s, one) for one in dataset] for dataset in (found, expected)]
        assert shares[0] == shares[1]
        rows = s.communicator.allgather_object([row for share in shares[0] for row in share])
        assert sorted(row for share in rows for row in share) == Y[:20].tolist()
        graph = private_data.graph_of(private_data.own_dataset(found))
        assert "FilterDatasetV674" in {node.op for node in graph.node}


@takes_long()
def test_rows_of_ones_own_are_not_compared():
    with compiled() as (s, model, random):
        order = random.permutation(COUNT)
        own = Dataset.from_tensor_slices((X[order], Y[order])).batch(8)
        model.fit(s.distribute_datasets_from_function(lambda _: own), verbose=0)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.OFF
        )
        model.fit(own.with_options(options), verbose=0)
