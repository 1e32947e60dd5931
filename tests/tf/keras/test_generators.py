"""Python generators that are read more than once: no batch is lost, however slow a rank's is."""

import gc
import itertools
import time
import weakref

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.tensorflow.keras import generators  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = [pytest.mark.mpi(ranks=[2, 3], timeout_s=200), takes_long()]
ROWS = 5
SLOW_S = [0.0, 0.03] if with_all() else [0.03]


def numbered(strategy, slow_s=0.0):
    """Yield batches whose labels are the batch's number; the last rank's come slowly."""
    is_last = strategy.communicator.rank == strategy.communicator.size - 1
    number = 0
    while True:
        time.sleep(slow_s * is_last)
        yield np.ones([ROWS, 2], "float32"), np.full([ROWS, 1], number, "float32")
        number += 1


def model_in(strategy, **how):
    """Return a model whose loss is the mean number of its batches, and stays so."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mae", **how)
        model.set_weights([np.zeros([2, 1]), np.zeros([1])])
    return model


class Stop(keras.callbacks.Callback):
    """Ends an epoch, and `fit`, after two batches."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.model.stop_training = True


@pytest.mark.parametrize("slow_s", SLOW_S)
def test_evaluations_go_on_where_the_one_before_has_ended(slow_s):
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        model, data = model_in(s), numbered(s, slow_s)
        found = [model.evaluate(data, steps=3, verbose=0) for _ in range(5)]
        np.testing.assert_allclose(found, [1, 4, 7, 10, 13], rtol=1e-6)
    drop(s)


@pytest.mark.parametrize("slow_s", SLOW_S)
def test_validations_go_on_too(slow_s):
    """Keras gives each of them the first two batches again."""
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        how = {"validation_data": numbered(s, slow_s), "validation_steps": 4, "verbose": 0}
        model, data = model_in(s), numbered(s)
        logs = model.fit(data, epochs=4, steps_per_epoch=5, **how).history
        np.testing.assert_allclose(logs["val_loss"], [1.5, 2.5, 3.5, 4.5], rtol=1e-6)
        np.testing.assert_allclose(logs["loss"], [2, 7, 12, 17], rtol=1e-6)
    drop(s)


@pytest.mark.parametrize("slow_s", SLOW_S)
def test_fits_go_on_after_an_epoch_that_was_stopped(slow_s):
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        model, data = model_in(s), numbered(s, slow_s)
        found = []
        for callbacks in ([Stop()], [], [Stop()], []):
            how = {"steps_per_epoch": 4, "callbacks": callbacks, "verbose": 0}
            found += model.fit(data, **how).history["loss"]
        np.testing.assert_allclose(found, [0.5, 3.5, 6.5, 9.5], rtol=1e-6)
        np.testing.assert_allclose(model.evaluate(data, steps=2, verbose=0), 12.5, rtol=1e-6)
    drop(s)


def test_several_steps_in_one_execution():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        model, data = model_in(s, steps_per_execution=2), numbered(s, 0.02)
        found = [model.evaluate(data, steps=4, verbose=0) for _ in range(3)]
        np.testing.assert_allclose(found, [1.5, 5.5, 9.5], rtol=1e-6)
    drop(s)


def test_a_generator_with_an_end_is_read_to_its_end():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        model, source = model_in(s), numbered(s, 0.02)
        data = (next(source) for _ in range(7))
        assert model.evaluate(data, steps=3, verbose=0) == pytest.approx(1)
        assert model.evaluate(data, verbose=0) == pytest.approx(4.5)  # 3, 4, 5 and 6
    drop(s)


def test_one_generator_for_two_calls_in_turn_is_refused():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        model, data = model_in(s), numbered(s)
        how = {"validation_data": data, "validation_steps": 2, "verbose": 0}
        with refused(UsageError, "one generator for two calls"):
            model.fit(data, epochs=2, steps_per_epoch=3, **how)
    drop(s)


def test_generators_are_freed():
    """TensorFlow keeps those that a model has read as long as the model; nothing else does."""
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        data = numbered(s)
        reader = generators._Reader(data)
        assert len(list(itertools.islice(reader.look(), 2))) == 2
        there = weakref.ref(data)
        del data, reader
        gc.collect()
        assert there() is None
    drop(s)
