"""Keras's models where one rank drives: the others have what it trains, or all have an error."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.tf.cases import mirrored_cpus  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.errors import MismatchError, UsageError  # noqa: E402 - TensorFlow may be missing
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

SOME = pytest.mark.mpi(ranks=2, timeout_s=60)
IDS = np.arange(8).reshape(4, 2) % 4


def backed():
    keras_dtype("float32")
    return TFBackedStrategy(lambda: mirrored_cpus(1), driver=0)


class OneHot(keras.Model):
    """Is not built by a batch of floats, which Keras takes where it knows shapes only."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, ids):
        return self.dense(tf.one_hot(ids, 4))


@takes_long()
@SOME
def test_a_model_is_built_by_the_types_of_the_driving_ranks_batch():
    with backed() as s:
        with s.scope():
            model = OneHot()
            model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", run_eagerly=True)
        model.fit(IDS, np.ones([4, 2, 3]), verbose=0)
        found = [*model.get_weights(), *(one.numpy() for one in model.optimizer.variables)]
        told = s.communicator.allgather_object([one.tolist() for one in found])
        assert len(told[0]) == 6
        assert told[0] == told[1]


@SOME
def test_a_model_that_one_rank_cannot_have_is_an_error_on_all_ranks():
    with backed() as s:
        with s.scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            model.compile("adam" if s.is_driver else "sgd", "mse", run_eagerly=True)
        text = "rank 1 cannot have what rank 0 has trained .its optimizer has 2 variables"
        with pytest.raises(MismatchError if s.is_driver else UsageError, match=text):
            model.train_on_batch(IDS, IDS[:, :1])
        assert s.on_driver(lambda: 7) == 7
