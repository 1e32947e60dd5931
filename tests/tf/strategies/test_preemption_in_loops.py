"""A loop of one's own with TensorFlow's checkpoints stops on all ranks after the same step."""

import os
import signal
import tempfile

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402 - TensorFlow may be missing
import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()


def train(strategy, folder, strike_at):
    """Count steps up to 20; return the count, and the exception that a signal brings."""
    with strategy.scope():
        count = tf.Variable(0, dtype=tf.int64)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(count=count), folder, 2)
    manager.restore_or_initialize()
    handler = mpistrat.PreemptionHandler(manager)
    try:
        while int(count.numpy()) < 20:
            if (int(count.numpy()), strategy.communicator.rank) == strike_at:
                os.kill(os.getpid(), signal.SIGTERM)
            count.assign_add(1)
            handler.end_step()
        handler.close()
    except mpistrat.Preempted as stop:
        handler.release()  # else this process, which goes on, would be ended
        return int(count.numpy()), stop
    return int(count.numpy()), None


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_loop_with_a_manager_of_tensorflow():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        folder = strategy.communicator.bcast_object(tempfile.mkdtemp())
        count, stop = train(strategy, folder, (3, 1))
        assert set(strategy.communicator.allgather_object(count)) == {count}
        assert 4 <= count < 20
        assert stop.code == 0
        assert stop.saved == tf.train.latest_checkpoint(folder)
        assert train(strategy, folder, None) == (20, None)
        assert int(tf.train.load_variable(folder, "count/.ATTRIBUTES/VARIABLE_VALUE")) == count
