"""Keras's fit whose gradients Horovod combines: the weights of one process, on all ranks."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("horovod.tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - Horovod may be missing
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()  # as the other files, whose tests may run in the same process

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).normal(size=(109, 8))
Y = (X.sum(1) > 0).astype(float)


def trained(strategy):
    """Return a model after 8 steps, the last of an epoch with fewer rows."""
    keras.utils.set_random_seed(1)
    keras_dtype("float64")
    with strategy.scope() if strategy else contextlib.nullcontext():
        hidden = keras.layers.Dense(16, activation="relu")
        model = keras.Sequential([keras.Input((8,)), hidden, keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(X, Y, batch_size=32, epochs=2, verbose=0)
    return [weight.numpy() for weight in model.weights]


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=120)
def test_fit_gives_the_weights_of_one_process_on_all_ranks():
    ops = distribute.HorovodAllReduce()
    with distribute.MirroredStrategy(cross_device_ops=ops) as strategy:
        ours = trained(strategy)
        labels = {str(call.label) for call in strategy.communicator.records()}
        assert any("by Horovod" in label for label in labels)
        bits = b"".join(weight.tobytes() for weight in ours)
        assert len(set(strategy.communicator.allgather_object(bits))) == 1
        for weight, expected in zip(ours, trained(None), strict=True):
            np.testing.assert_allclose(weight, expected, rtol=1e-6, atol=1e-12)


@takes_long()
@pytest.mark.deadline(200)
def test_the_demo_learns_by_horovod():
    command = ["-m", "mpistrat.demo.keras_digits", "--cross-device-ops", "horovod"]
    result = run_job(command, 2, timeout_s=120, env={"PYTHONPATH": str(ROOT)}).check()
    (accuracy,) = re.findall(r"2 replicas, test accuracy ([\d.]+)%", result.ranks[0].stdout)
    assert float(accuracy) > 80
