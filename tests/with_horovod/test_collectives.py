"""`HorovodCollectives`: every operation and its gradient, in eager code and in graphs."""

import functools
import inspect

import numpy as np
import pytest

pytest.importorskip("horovod.tensorflow")
pytest.importorskip("tensorflow")

import tensorflow as tf

import mpistrat.tensorflow as distribute
from helpers.tf.process import four_cpus
from mpistrat.errors import UsageError
from mpistrat.testing.sets import repeats

pytestmark = pytest.mark.mpi(ranks=[2, pytest.param(3, marks=repeats())], timeout_s=60)

four_cpus()


def with_horovod(test):
    """Return a test that is given a strategy and its collectives as its first arguments."""

    def run(**arguments):
        with distribute.MirroredStrategy(backend="horovod") as strategy:
            test(strategy, distribute.HorovodCollectives(strategy), **arguments)

    signature = inspect.signature(test)
    functools.update_wrapper(run, test).__signature__ = signature.replace(
        parameters=list(signature.parameters.values())[2:]
    )
    del run.__wrapped__
    return run


def ranks_of(strategy):
    return strategy.extended.bridge.rank, strategy.extended.bridge.size


def with_gradient(call, x, weights):
    """Return a result and the gradient of its weighted sum, in eager code and in a graph."""

    def both():
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = call(x)
            loss = tf.reduce_sum(result * weights)
        return result, tape.gradient(loss, x)

    return both(), tf.function(both)()


@with_horovod
def test_all_reduce(strategy, horovod):
    rank, size = ranks_of(strategy)
    x = tf.constant([1.0, 2.0]) * (rank + 1)
    factor = size * (size + 1) / 2
    for result, gradient in with_gradient(horovod.all_reduce, x, [1.0, 10.0]):
        np.testing.assert_allclose(result, np.array([1.0, 2.0]) * factor)
        np.testing.assert_allclose(gradient, np.array([1.0, 10.0]) * size)
    means = horovod.all_reduce([x, tf.ones([3], tf.float64)], "mean")
    np.testing.assert_allclose(means[0], np.array([1.0, 2.0]) * factor / size)
    np.testing.assert_allclose(means[1], np.ones(3))


@pytest.mark.parametrize("axis", [0, 1])
@with_horovod
def test_all_gather_of_unequal_lengths(strategy, horovod, axis):
    rank, size = ranks_of(strategy)
    shapes = [[1 + r, 2] if axis == 0 else [2, 1 + r] for r in range(size)]
    everyone = [np.full(shape, float(r)) for r, shape in enumerate(shapes)]
    expected = np.concatenate(everyone, axis)
    weights = np.arange(expected.size, dtype=float).reshape(expected.shape)
    start = sum(shape[axis] for shape in shapes[:rank])
    mine = np.take(weights, range(start, start + shapes[rank][axis]), axis)
    x = tf.constant(everyone[rank])
    for result, gradient in with_gradient(lambda x: horovod.all_gather(x, axis), x, weights):
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_allclose(gradient, mine * size)


@with_horovod
def test_broadcast(strategy, horovod):
    rank, size = ranks_of(strategy)
    root = size - 1
    x = tf.constant([1.0, 2.0]) + rank
    for result, gradient in with_gradient(lambda x: horovod.broadcast(x, root), x, [1.0, 3.0]):
        np.testing.assert_array_equal(result, np.array([1.0, 2.0]) + root)
        np.testing.assert_allclose(gradient, np.array([1.0, 3.0]) * size * (rank == root))
    with pytest.raises(UsageError, match="is no rank"):
        horovod.broadcast(x, size)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("op", ["sum", "mean"])
@with_horovod
def test_reduce_scatter(strategy, horovod, op, dtype):
    rank, size = ranks_of(strategy)
    if (op, dtype) == ("mean", "int8"):
        with pytest.raises(UsageError, match="the mean of a tensor of int8"):
            horovod.reduce_scatter(tf.ones([size], dtype), op)
        return
    rows = 2 * size + 1
    x = np.arange(rows * 2).reshape(rows, 2) % 5 + rank
    everyone = [np.arange(rows * 2).reshape(rows, 2) % 5 + r for r in range(size)]
    parts = np.array_split(sum(everyone), size)  # the first have one row more
    total = parts[rank] / (1 if op == "sum" else size)
    result = horovod.reduce_scatter(tf.constant(x, dtype), op)
    np.testing.assert_array_equal(result, total.astype(dtype))
    if dtype == "float32":
        weights = tf.ones(parts[rank].shape) * (rank + 1.0)
        expected = np.concatenate([np.full(p.shape, r + 1.0) for r, p in enumerate(parts)])
        call = with_gradient(
            lambda x: horovod.reduce_scatter(x, op), tf.constant(x, dtype), weights
        )
        for _, gradient in call:
            np.testing.assert_allclose(gradient, expected / (1 if op == "sum" else size))


@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", "bfloat16"])
@with_horovod
def test_all_to_all(strategy, horovod, dtype):
    rank, size = ranks_of(strategy)
    # Rank r sends i + 1 rows, of its number, to rank i.
    x = tf.cast(tf.fill([size * (size + 1) // 2, 2], rank), dtype)
    splits = tf.range(1, size + 1)
    expected = np.repeat(np.arange(size), rank + 1)
    for found, came in (
        horovod.all_to_all(x, splits),
        tf.function(lambda: horovod.all_to_all(x, splits))(),
    ):
        np.testing.assert_array_equal(found[:, 0], tf.cast(expected, dtype))
        np.testing.assert_array_equal(came, np.full(size, rank + 1))


@with_horovod
def test_gradient_of_all_to_all(strategy, horovod):
    rank, size = ranks_of(strategy)
    x = tf.ones([2 * size])
    for result, gradient in with_gradient(lambda x: horovod.all_to_all(x)[0], x, float(rank + 1)):
        np.testing.assert_array_equal(result, np.ones(2 * size))
        np.testing.assert_array_equal(gradient, np.repeat(np.arange(size) + 1, 2))


@with_horovod
def test_wrong_splits_are_found_before_horovod_gets_them(strategy, horovod):
    size = ranks_of(strategy)[1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits are one number of rows"):
        horovod.all_to_all(tf.ones([size]), [2] * size)
    np.testing.assert_array_equal(horovod.all_to_all(tf.ones([size]))[0], np.ones(size))


@with_horovod
def test_wrong_arguments_are_found_before_anything_is_sent(strategy, horovod):
    for call, words in (
        (lambda: horovod.all_gather(tf.constant(1.0)), "along axis=0 of a tensor of shape"),
        (lambda: horovod.all_gather(tf.ones([2]), axis=5), "along axis=5"),
        (lambda: horovod.all_to_all(tf.constant(1.0)), "along axis=0"),
        (lambda: horovod.all_reduce(tf.constant(1), "mean"), "the mean of a tensor of int32"),
        (lambda: horovod.all_reduce(tf.constant("a")), "the sum of a tensor of string"),
        (lambda: horovod.all_reduce(tf.ones([2]), "max"), "op='max'"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
        with pytest.raises(UsageError, match=words):
            tf.function(call, autograph=False)()
    assert horovod.all_reduce([]) == []
    assert float(horovod.all_reduce(tf.constant(1.0))) == ranks_of(strategy)[1]


@with_horovod
def test_strings_and_axes_from_the_end(strategy, horovod):
    rank, size = ranks_of(strategy)
    assert horovod.broadcast(tf.constant(f"rank {rank}"), 1).numpy() == b"rank 1"
    found = horovod.all_gather(tf.fill([2, 1], rank), axis=-1)
    np.testing.assert_array_equal(found, [list(range(size))] * 2)


def test_a_strategy_without_horovod_has_none():
    with (
        distribute.MirroredStrategy() as strategy,
        pytest.raises(UsageError, match="HorovodAllReduce"),
    ):
        distribute.HorovodCollectives(strategy)
