"""Names that legacy Keras counts in each process are no reason for an error on ranks."""

from unittest import mock

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf_keras")

from helpers.tf.cases import Case  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import MismatchError  # noqa: E402
from mpistrat.tensorflow.graph.same_variables import variable_order  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = [pytest.mark.mpi(ranks=2, timeout_s=90), takes_long()]


def built(keras, optimizer, words=(None, None)):
    layers = [keras.layers.Dense(4, name=word) for word in words]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    if isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        optimizer._create_all_weights(model.trainable_variables)
    else:
        optimizer.build(model.trainable_variables)


def made(keras, name):
    older = keras.optimizers.legacy
    return older.Adam() if name == "older" else keras.optimizers.Adam(use_ema=True)


@pytest.mark.parametrize("name", ["newer", "older"])
def test_ranks_ahead_of_the_others(name):
    """As in folds of which each rank summarizes one."""
    import tf_keras as keras

    built(keras, made(keras, name))  # before there is a strategy
    strategy = Case(2, 1).ours()
    with mock.patch.object(variable_order.NameOrder, "_judge") as judge:
        for fold in range(3):
            keras.backend.clear_session()
            if strategy.extended.bridge.rank == fold % 2:
                built(keras, made(keras, name))
            with strategy.scope():
                built(keras, made(keras, name))
        judge.assert_not_called()
    strategy.close()


@pytest.mark.parametrize("name", ["newer", "older"])
def test_layers_with_names_in_another_order(name):
    import tf_keras as keras

    strategy = Case(2, 1).ours()
    words = ("user_9", "item_7")
    mine = words if strategy.extended.bridge.rank == 0 else words[::-1]
    with strategy.scope(), pytest.raises(MismatchError, match="item_7/kernel"):
        built(keras, made(keras, name), mine)
    strategy.close()
