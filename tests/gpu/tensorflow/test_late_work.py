"""Collectives are ordered with TensorFlow's streams where all work of the GPU is late."""

import os
import sys

import pytest

pytest.importorskip("cupy")
tf = pytest.importorskip("tensorflow")

from helpers.tf.gpu_device import gpus_of_tensorflow  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

pytestmark = takes_long(unit="file")

PROGRAM = """
import cupy
import numpy as np
import tensorflow as tf
from helpers.tf.gpu_device import gpus_of_tensorflow

gpus_of_tensorflow()
import mpistrat.tensorflow as distribute
from mpistrat.tensorflow.graph.tensor_collective import SameShape

# An operation that is over when its work is queued, as all of TensorFlow's own are.
def queue_product(given, results):
    cupy.multiply(given[0], 2, out=results[0])


double = SameShape(queue_product, None)

with distribute.MirroredStrategy(["GPU:0"]) as s:
    assert s.extended.bridge.uses_gpus

    @tf.function(autograph=False)
    def step(given):
        def replica_fn(one):
            for _ in range(2):
                for _ in range(3):
                    (one,) = double.on_gpu([one])
                one = tf.distribute.get_replica_context().all_reduce("SUM", one)
            return one

        return s.run(replica_fn, (given,))

    for i in range(4):
        mine = np.full(3000, i + s.communicator.rank, "float32")
        np.testing.assert_array_equal(step(tf.constant(mine)).numpy(), (2 * i + 1) * 8 * 8 * 2)
"""


@pytest.mark.deadline(120)
def test_chains_of_collectives_on_a_slow_gpu():
    gpus_of_tensorflow()
    env = {"PRETEND_LATE_MS": "20", "PYTHONPATH": os.pathsep.join(sys.path)}
    run_job(["-c", PROGRAM], 2, timeout_s=110, env=env).check()
