"""Data sets that workers read by themselves: every copy gives the same, epoch by epoch."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from mpistrat.tensorflow.data.shipped_datasets import is_endless, length, sent  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

N = 12


def arrays(shuffle):
    data = keras.src.trainers.data_adapters.get_data_adapter(
        np.arange(N), batch_size=4, shuffle=shuffle
    )
    return data.get_tf_dataset().unbatch()


WORDS = [chr(ord("z") - i) for i in range(N)]
VARIABLE = tf.Variable(1, dtype=tf.int64)


KEYS = tf.range(N, dtype=tf.int64)
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(KEYS, KEYS), 0)


def inner(i):
    return tf.data.Dataset.range(i, i + 3).shuffle(3)


NEW_EACH_TIME = {
    "arrays": lambda: arrays(True),
    "batches of arrays": lambda: arrays("batch"),
    "shuffled": lambda: tf.data.Dataset.range(N).shuffle(N),
    "twice": lambda: tf.data.Dataset.range(N).shuffle(3).map(lambda x: x + 0).shuffle(5),
    "random map": lambda: tf.data.Dataset.range(N).map(lambda x: tf.random.uniform([])),
}
ALIKE_EACH_TIME = {
    "in order": lambda: tf.data.Dataset.range(N),
    "a table": lambda: tf.data.Dataset.range(N).map(TABLE.lookup),
    "a table of a layer": lambda: tf.data.Dataset.from_tensor_slices(WORDS).map(
        keras.layers.StringLookup(vocabulary=sorted(WORDS))
    ),
    "arrays in order": lambda: arrays(False),
    "shuffled once": lambda: tf.data.Dataset.range(N).shuffle(N, reshuffle_each_iteration=False),
}
ONLY_HERE = {
    "generator": lambda: tf.data.Dataset.from_generator(
        lambda: range(N), output_signature=tf.TensorSpec((), tf.int64)
    ),
    "Python in a map": lambda: tf.data.Dataset.range(N).map(
        lambda x: tf.py_function(lambda y: y, [x], tf.int64)
    ),
    "a variable": lambda: tf.data.Dataset.range(N).map(lambda x: x + VARIABLE),
    "shuffled inside": lambda: tf.data.Dataset.range(0, N, 3).flat_map(inner),
}


def epochs(dataset_fn):
    """Return what two epochs give."""
    pairs = list(dataset_fn().take(2 * N).as_numpy_iterator())
    assert [number for number, _ in pairs] == [*range(2 * N)]
    values = [value[0] if isinstance(value, tuple) else value for _, value in pairs]
    return values[:N], values[N:]


@takes_long()
@pytest.mark.parametrize("name", NEW_EACH_TIME)
def test_copies_shuffle_alike(name):
    dataset_fn = sent(NEW_EACH_TIME[name]())
    first, second = epochs(dataset_fn)
    assert first != second
    assert epochs(dataset_fn) == (first, second)
    assert epochs(sent(NEW_EACH_TIME[name]())) != (first, second)
    if "random" not in name:
        assert sorted(first) == sorted(second) == [*range(N)]


@pytest.mark.parametrize("name", ALIKE_EACH_TIME)
def test_copies_without_chance(name):
    dataset_fn = sent(ALIKE_EACH_TIME[name]())
    first, second = epochs(dataset_fn)
    assert first == second == [*ALIKE_EACH_TIME[name]().as_numpy_iterator()] or "once" in name
    assert epochs(dataset_fn) == (first, second)


def test_seeds_that_are_given_are_kept():
    dataset = tf.data.Dataset.range(N).shuffle(N, seed=5)
    here = [*dataset.as_numpy_iterator()]
    assert epochs(sent(dataset))[0] == here
    assert epochs(sent(dataset))[0] == here


@pytest.mark.parametrize("name", ONLY_HERE)
def test_what_only_this_process_can_read(name):
    assert sent(ONLY_HERE[name]()) is None


def test_lengths():
    dataset = tf.data.Dataset.range(N)
    assert (length(dataset), is_endless(dataset)) == (N, False)
    assert (length(dataset.repeat()), is_endless(dataset.repeat())) == (None, True)
    some = dataset.filter(lambda x: x > 3)
    assert (length(some), is_endless(some)) == (None, False)
