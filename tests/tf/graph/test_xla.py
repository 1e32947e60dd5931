"""Collectives in functions that XLA compiles: ``jit_compile=True``."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - TensorFlow may be missing

import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.errors import MismatchError  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=120)
COUNT = 30


def here():
    return tf.distribute.get_replica_context()


def compiled(strategy, fn):
    return tf.function(lambda *args: strategy.run(fn, args), jit_compile=True)


DTYPES = ["float32", "float64", "bfloat16", "int32", "complex64"]


@takes_long()
@pytest.mark.parametrize("dtype", DTYPES if with_all() else DTYPES[2:4])
def test_values_and_their_order(dtype):
    """XLA would begin equal calls in any order; each has to meet its own on the other rank."""
    with distribute.MirroredStrategy(["CPU:0"]) as s:

        @tf.function(jit_compile=True)
        def step(x):
            return s.run(lambda x: [here().all_reduce("SUM", x * k) for k in range(COUNT)], (x,))

        mine = tf.cast(tf.fill([1000], s.communicator.rank + 1), dtype)
        for _ in range(3):
            for k, found in enumerate(step(mine)):
                assert found.dtype == dtype
                assert (found.numpy() == 3 * k).all()


@pytest.mark.parametrize("kind", ["MirroredStrategy", "CentralStorageStrategy"])
def test_calls_around_a_compiled_function(kind):
    with getattr(distribute, kind)(["CPU:0"]) as s:
        twice = tf.function(lambda x: here().all_reduce("SUM", x) * 2.0, jit_compile=True)

        @tf.function
        def step():
            before = s.run(lambda: here().all_reduce("SUM", tf.constant(1.0)))
            within = s.run(twice, (before,))
            return s.run(lambda x: here().all_reduce("SUM", x), (within,))

        assert step().numpy() == 16.0


def test_lists_means_and_gradients():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        rank = s.communicator.rank
        both = compiled(s, lambda x, y: here().all_reduce("MEAN", [x, y]))
        x, y = both(tf.fill([3], rank + 1.0), tf.fill([2, 2], float(rank)))
        assert (x.numpy() == 1.5).all()
        assert (y.numpy() == 0.5).all()

        def slope(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(here().all_reduce("SUM", x) * (rank + 1.0))
            return tape.gradient(total, x)

        assert (compiled(s, slope)(tf.ones([4])).numpy() == 3.0).all()


def test_a_result_that_nobody_uses_is_waited_for():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        before = s.communicator.call_log.sequence

        def step(x):
            here().all_reduce("SUM", x)
            return x

        compiled(s, step)(tf.ones([2]))
        assert s.communicator.call_log.sequence == before + 1


def test_calls_that_differ():
    s = distribute.MirroredStrategy(["CPU:0"])
    step = compiled(s, lambda x: here().all_reduce("SUM", x))
    with refused(MismatchError, "(?s)ranks called different.*rank 0.*rank 1"):
        step(tf.ones([2 + s.communicator.rank]))
    assert (step(tf.ones([2])).numpy() == 2.0).all()
    drop(s)


def test_what_cannot_be_compiled_says_so():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        gather = compiled(s, lambda x: here().all_gather(x, axis=0))
        with refused(NotImplementedError, "jit_compile=True.*gather"):
            gather(tf.ones([2]))

        def loop(x):
            for _ in tf.range(3):
                x = here().all_reduce("SUM", x)
            return x

        with refused(NotImplementedError, "(?s)jit_compile=True.*loop"):
            compiled(s, loop)(tf.ones([2]))
        ragged = tf.function(
            lambda x: s.run(lambda x: here().all_reduce("SUM", x), (x,)),
            jit_compile=True,
            input_signature=[tf.TensorSpec([None])],
        )
        with refused(NotImplementedError, "(?s)jit_compile=True.*shape"):
            ragged(tf.ones([2]))


@takes_long()
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_keras_fit(optimizer):
    rows = np.random.default_rng(0).normal(size=(64, 8))
    wanted = (rows.sum(1, keepdims=True) > 0).astype(float)

    def fit(jit_compile):
        keras.utils.set_random_seed(1)
        keras_dtype("float64")
        with distribute.MirroredStrategy(["CPU:0"]) as strategy:
            with strategy.scope():
                layers = [keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)]
                model = keras.Sequential([keras.Input((8,)), *layers])
                loss = keras.losses.BinaryCrossentropy(from_logits=True)
                model.compile(optimizer, loss, jit_compile=jit_compile)
            model.fit(rows, wanted, batch_size=16, epochs=2, verbose=0, shuffle=False)
            return [weight.numpy() for weight in model.weights]

    for ours, plain in zip(fit(True), fit(False), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-9)
