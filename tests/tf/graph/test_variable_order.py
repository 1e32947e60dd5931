"""Ranks that create variables in unequal orders are told."""

from unittest import mock

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.tf.cases import Case, some  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import MismatchError  # noqa: E402
from mpistrat.tensorflow.graph.same_variables import variable_order  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
CASES = some([Case(2, 1), Case(2, 2), Case(2, 1, "Central")])
# Each rank's names, of variables of one shape.
SWAPPED = {
    "words": (["user", "item"], ["item", "user"]),
    "numbers": (["tower_0", "tower_1"], ["tower_1", "tower_0"]),
    "three": (["t0", "t1", "t2"], ["t1", "t2", "t0"]),
    "one left out": (["a", "b", "c"], ["b", "c", "d"]),
}
CORRECT = {
    "the rank in the name": (["v0", "w0"], ["v1", "w1"]),
    "roles": (["chief/x", "y"], ["worker/x", "y"]),
    "a rank that is ahead": (["linear_3/w", "linear_4/w"], ["linear_4/w", "linear_5/w"]),
    "no names": ([None, None], [None, None]),
}


def created(strategy, names, dtype=float):
    mine = strategy.extended.bridge.rank
    with strategy.scope():
        return [tf.Variable(dtype(10 * mine + i), name=name) for i, name in enumerate(names)]


@pytest.mark.parametrize("dtype", [float, str])
@pytest.mark.parametrize("names", SWAPPED.values(), ids=SWAPPED)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_variables_in_another_order_are_an_error(case, names, dtype):
    strategy = case.ours()
    mine = names[strategy.extended.bridge.rank]
    with pytest.raises(MismatchError) as error:
        created(strategy, mine, dtype)
    text = str(error.value)
    assert "in different orders" in text
    for rank in range(2):
        line = next(line for line in text.splitlines() if f"rank {rank}:" in line)
        assert f"'{names[rank][0]}', then" in line
        assert line.split("'")[3] in names[rank][1:]
    strategy.close()


@pytest.mark.parametrize("names", CORRECT.values(), ids=CORRECT)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_names_may_differ(case, names):
    strategy = case.ours()
    variables = created(strategy, names[strategy.extended.bridge.rank])
    assert [float(one.numpy()) for one in variables] == [0.0, 1.0]
    strategy.close()


def test_other_words_are_a_warning():
    strategy = Case(2, 1).ours()
    rank = strategy.extended.bridge.rank
    with mock.patch.object(variable_order, "warn_once") as warn:
        created(strategy, CORRECT["the rank in the name"][rank])
        warn.assert_not_called()
        created(strategy, [f"{'chief' if rank == 0 else 'helper'}/x"])
    text = warn.call_args.args[2]
    assert "'chief/x'" in text
    assert "'helper/x'" in text
    assert "treated as one variable" in text
    strategy.close()


def test_variables_of_a_function_in_another_order():
    strategy = Case(2, 1).ours()
    names = ["user", "item"] if strategy.extended.bridge.rank == 0 else ["item", "user"]
    made = []

    @tf.function
    def first_call():
        if not made:
            made.extend(tf.Variable(lambda: 1.0, name=name) for name in names)
        return made[0] + made[1]

    with strategy.scope(), pytest.raises(MismatchError, match="'user', then 'item'"):
        first_call()
    strategy.close()


# ------------------------------------------------------------------------------ Keras's names


def built(words=("user", "item")):
    inputs = keras.Input((4,))
    x = keras.layers.Add()([keras.layers.Dense(4, name=word)(inputs) for word in words])
    x = keras.layers.Bidirectional(keras.layers.LSTM(2))(keras.layers.Dense(4)(x)[:, None])
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("adam", "mse", metrics=["mae", keras.metrics.MeanSquaredError()])
    model.optimizer.build(model.trainable_variables)
    return model


def test_a_layer_with_a_name_in_another_order():
    strategy = Case(2, 1).ours()
    words = ("user", "item") if strategy.extended.bridge.rank == 0 else ("item", "user")
    with strategy.scope(), pytest.raises(MismatchError, match="'item/kernel', then 'user/kernel'"):
        built(words)
    strategy.close()


@takes_long()
def test_ranks_ahead_of_the_others_in_keras_names():
    """As in folds of which each rank summarizes one; names of Keras do not even cost a message."""
    strategy = Case(2, 1).ours()
    with mock.patch.object(variable_order.NameOrder, "_judge") as judge:
        for fold in range(3):
            keras.utils.clear_session()
            if strategy.extended.bridge.rank == fold % 2:
                built()
            with strategy.scope():
                built()
        judge.assert_not_called()
    strategy.close()
