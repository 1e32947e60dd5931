"""Iterators of strategies that go while TensorFlow's thread reads from their dataset."""

import pytest

pytest.importorskip("tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(90)

PROGRAM = """
import tensorflow as tf
import mpistrat.tensorflow as distribute

options = tf.data.Options()
options.experimental_optimization.apply_default_optimizations = False  # as Keras has them
long = tf.data.Dataset.range(300_000).batch(300_000)
data = tf.data.Dataset.range(1).batch(1).concatenate(long).with_options(options)
with distribute.OneDeviceStrategy("CPU:0") as strategy:
    iterator = iter(strategy.experimental_distribute_dataset(data))
    next(iterator)
    del iterator  # the thread is at the second batch, for long
    print("alive")
"""


@takes_long()
def test_an_iterator_is_dropped_while_its_next_batch_is_being_made():
    """TensorFlow frees the dataset that its thread still reads (2.21)."""
    overwritten = {"MALLOC_PERTURB_": "85"}  # what has been freed, by glibc
    (rank,) = run_job(["-c", PROGRAM], 1, 60, env=overwritten).check().ranks
    assert rank.stdout.splitlines() == ["alive"]
