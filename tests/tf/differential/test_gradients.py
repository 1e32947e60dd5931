"""Gradients through collectives, and sparse ones, as TensorFlow has them."""

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import (  # noqa: E402
    SPREAD,
    same,
)
from helpers.tf.process import four_cpus  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()


def here():
    return tf.distribute.get_replica_context()


def number():
    return tf.cast(here().replica_id_in_sync_group + 1, tf.float32)


@takes_long()
@same()
def test_gradients_of_a_variable(s):
    with s.scope():
        v = tf.Variable([1.0, 2.0])

    def fn():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v) * number()
        gradient = tape.gradient(loss, v)
        return gradient, here().all_reduce("SUM", gradient)

    return [s.run(fn), tf.function(lambda: s.run(fn))()]


@same()
def test_second_gradients(s):
    def fn():
        x = number()
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = here().all_reduce("SUM", x * x * x)
            first = inner.gradient(y, x)
        return first, outer.gradient(first, x)

    return s.run(fn)


def slices():
    i = here().replica_id_in_sync_group
    return tf.IndexedSlices(tf.stack([[number()] * 2]), tf.stack([i % 2]), tf.constant([3, 2]))


@same()
def test_sparse_values_stay_sparse(s):
    # Which rows there are, and in which order, is the same; TensorFlow adds none up either.
    return s.run(lambda: tf.convert_to_tensor(here().all_reduce("SUM", slices())))


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_sparse_values_are_rows(layout):
    def fn():
        found = here().all_reduce("SUM", slices())
        assert isinstance(found, tf.IndexedSlices)
        return found.indices, found.values

    with layout.ours() as s:
        for run in (s.run, tf.function(s.run)):
            indices, values = map(s.experimental_local_results, run(fn))
            assert indices[0].numpy().tolist() == [i % 2 for i in range(layout.replicas)]
            assert values[0].numpy().tolist() == [[i + 1.0] * 2 for i in range(layout.replicas)]


@same()
def test_sparse_gradients(s):
    with s.scope():
        table = tf.Variable(tf.ones([4, 2]))

    @tf.function
    def step():
        def fn():
            with tf.GradientTape() as tape:
                ids = tf.stack([here().replica_id_in_sync_group, 3])
                loss = tf.reduce_sum(tf.gather(table, ids)) * number()
            gradient = here().all_reduce("SUM", tape.gradient(loss, table))
            return tf.convert_to_tensor(gradient)

        total = s.experimental_local_results(s.run(fn))[0]
        table.assign_sub(total * 0.5)

    step()
    return table.numpy()


@same()
def test_gradient_of_all_gather(s):
    def fn():
        i = tf.cast(here().replica_id_in_sync_group, tf.float32)
        x = tf.stack([[i + 1.0, i]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            every = here().all_gather(x, axis=0)
            loss = tf.reduce_sum(every * every * (i + 1.0))
        return tape.gradient(loss, x)

    return s.run(fn)


@takes_long()
@same()
def test_gradient_of_all_reduce(s):
    def fn(op):
        i = tf.cast(here().replica_id_in_sync_group, tf.float32)
        x = tf.stack([i + 1.0, 2.0 * i])
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = here().all_reduce(op, x * x)
            loss = tf.reduce_sum(total * (i + 1.0))
        return total, tape.gradient(loss, x)

    return [f(fn, (op,)) for f in (s.run, tf.function(s.run)) for op in ("SUM", "MEAN")]
