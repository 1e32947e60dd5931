"""Programs end although TensorFlow still reads from a Python generator, where it would hang."""

import pytest

pytest.importorskip("tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = [pytest.mark.deadline(120), takes_long()]

PROGRAM = """
import sys, threading, time
import keras, numpy as np
import mpistrat.tensorflow as distribute

def batches(pause):
    for number in range(1000):
        if number >= 4:
            pause()
        yield np.ones([4, 2], "float32"), np.ones([4, 1], "float32")

class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            raise ValueError("a callback's")

strategy = distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

def fit(pause):
    model.fit(batches(pause), steps_per_epoch=5, verbose=0, callbacks=[Fails()])

def fit_and_keep_error(pause):
    global kept
    try:
        fit(pause)
    except ValueError as error:
        kept = error
    print("caught", flush=True)

{end}
"""
SLOW = "lambda: time.sleep(0.5)"
ENDLESS = "threading.Event().wait"
LEFT = "this process ends without waiting for it"


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_iterator_that_an_error_holds_is_ended(num_ranks):
    result = run_job(["-c", PROGRAM.format(end=f"fit_and_keep_error({SLOW})")], num_ranks, 90)
    for rank in result.check().ranks:
        assert rank.stdout.splitlines() == ["caught"], result.output
    assert LEFT not in result.output


@pytest.mark.parametrize("pause", [SLOW, ENDLESS], ids=["slow", "endless"])
def test_an_error_that_nobody_catches_ends_the_program(pause):
    result = run_job(["-c", PROGRAM.format(end=f"fit({pause})")], 1, 90)
    assert not result.timed_out, result.output
    assert result.returncode == 1
    assert "ValueError: a callback's" in result.output


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_generator_that_never_gives_its_next_batch_is_not_waited_for(num_ranks):
    end = f"fit_and_keep_error({ENDLESS}); sys.exit(3)"
    result = run_job(["-c", PROGRAM.format(end=end)], num_ranks, 90)
    assert not result.timed_out, result.output
    assert result.returncode == 3
    assert LEFT in result.output


TWO_DEVICES = """
import sys, time
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import mpistrat.tensorflow as distribute

def numbers():
    for number in range(1000):
        time.sleep(0.01)
        yield number

data = {data}
strategy = distribute.MirroredStrategy(["CPU:0", "CPU:1"])
iterator = iter(strategy.experimental_distribute_dataset(data.batch(4)))
next(iterator)
"""


@pytest.mark.parametrize(
    "data", ["tf.data.Dataset.range(100)", "tf.data.Dataset.from_generator(numbers, tf.int64)"]
)
def test_a_program_ends_well_with_an_iterator_for_two_devices(data):
    result = run_job(["-c", TWO_DEVICES.format(data=data)], 1, 90).check()
    assert "Traceback" not in result.output, result.output
