"""Statistics of layers over their batches are the mean over the replicas, on all ranks."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import Case, drop  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.errors import MismatchError  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=120)
X = np.arange(24.0).reshape(24, 1)


def made(strategy, **options):
    """Return a model whose layer keeps the last batch's mean and variance."""
    keras.utils.set_random_seed(1)
    keras_dtype("float64")
    with strategy.scope():
        layers = [keras.layers.BatchNormalization(momentum=0.0), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((1,)), *layers])
        model.compile(options.pop("optimizer", "sgd"), "mse", **options)
    return model


def fit(model, rows=24, **options):
    x = X[:rows]
    return model.fit(x, x, batch_size=12, shuffle=False, verbose=0, **options)


def assert_alike(strategy, arrays):
    mine = b"".join(np.asarray(array).tobytes() for array in arrays)
    assert len(set(strategy.communicator.allgather_object(mine))) == 1


def assert_of_last_batch(strategy, model, rows):
    """Assert that all ranks have the mean of what replicas have of `rows`, equally many each."""
    parts = np.split(rows, strategy.num_replicas_in_sync)
    assert_alike(strategy, model.get_weights())
    found = [model.layers[0].moving_mean.numpy(), model.layers[0].moving_variance.numpy()]
    want = [[np.mean([part.mean() for part in parts])], [np.mean([part.var() for part in parts])]]
    np.testing.assert_allclose(found, want, rtol=1e-6)


OPTIONS = {
    "graph": {},
    "eager": {"run_eagerly": True},
    "compiled": {"jit_compile": True},
    "several steps": {"steps_per_execution": 2},
    "accumulated": {"optimizer": lambda: keras.optimizers.SGD(gradient_accumulation_steps=2)},
    "scaled": {"optimizer": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())},
}


@takes_long()
@pytest.mark.parametrize("way", OPTIONS)
def test_fit(way):
    options = dict(OPTIONS[way])
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        with strategy.scope():
            if "optimizer" in options:
                options["optimizer"] = options["optimizer"]()
        model = made(strategy, **options)
        fit(model, epochs=2)
        assert_of_last_batch(strategy, model, X[12:])


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=120)
@pytest.mark.parametrize("layout", [Case(2, 2), Case(2, 1, "Backed")], ids=str)
def test_fit_of_other_layouts(layout):
    with layout.ours() as strategy:
        model = made(strategy)
        fit(model)
        assert_of_last_batch(strategy, model, X[12:])
        values = strategy.experimental_local_results(model.layers[0].moving_mean.value)
        assert len({value.numpy().tobytes() for value in values}) == 1


@takes_long()
@pytest.mark.parametrize("is_eager", [False, True], ids=["graph", "eager"])
def test_replicas_count_by_their_rows(is_eager):
    """The last batch is one row: the mean of none is no number, nor are gradients with it."""
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model = made(strategy, run_eagerly=is_eager)
        fit(model, rows=13)
        assert_alike(strategy, model.get_weights())
        assert all(np.isfinite(one).all() for one in model.get_weights())
        assert model.layers[0].moving_mean.numpy() == X[12]
        assert model.layers[0].moving_variance.numpy() == 0.0
        fit(model, rows=17)  # 5 rows, of which rank 0 has as many as others or more
        np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), [14.0])


# ------------------------------------------------------------------------------------ own loops


def trains(layer):
    return lambda x: layer(x, training=True)


def within(function):
    """Return a Python function that calls `function`, be that a ``tf.function``."""

    def call(*args):
        return function(*args)

    return call


def in_branch(layer):
    def call(x):
        return layer(x, training=True) if tf.reduce_sum(x) > -1.0 else x

    return tf.function(call)


def with_gradient(layer):
    function = tf.function(trains(layer))

    def call(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(y, layer.gamma.value)

    return call


def in_loop(strategy, function):
    @tf.function
    def step(x):
        for _ in tf.range(2):
            strategy.run(function, (x,))

    return step


FUNCTIONS = {
    "Python": trains,
    "function": lambda layer: tf.function(trains(layer)),
    "compiled function": lambda layer: tf.function(trains(layer), jit_compile=True),
    "branch": in_branch,
    "gradient of a function": with_gradient,
}
STEPS = {
    "eager": lambda strategy, function: lambda x: strategy.run(function, (x,)),
    "graph": lambda strategy, function: tf.function(lambda x: strategy.run(function, (x,))),
    "loop": in_loop,
}


SHOWN_BY_OTHERS = {("compiled function", "loop"), ("gradient of a function", "loop")}


@takes_long()
@pytest.mark.parametrize(
    ("function", "step"),
    [
        pytest.param(*both, marks=[repeats()] if both in SHOWN_BY_OTHERS else [])
        for both in itertools.product(FUNCTIONS, STEPS)
    ],
)
def test_own_loop(function, step):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model = made(strategy)
        layer, rank = model.layers[0], strategy.communicator.rank
        own = FUNCTIONS[function](layer)
        # What is called after the first is traced already, and is called directly and by another.
        for turn, called in enumerate((own, within(own), own), 1):
            call = STEPS[step](strategy, called)
            layer.moving_mean.assign([-1.0])
            call(tf.constant(turn * X[4 * rank : 4 * rank + 4]))
            rows = turn * X[: 4 * strategy.num_replicas_in_sync]
            assert_of_last_batch(strategy, model, rows)


def sometimes(layer):
    return lambda x: layer(x, training=True) if tf.size(x) > 0 else x


KEPT = {
    "called with no rows": trains,
    "left out in a function": lambda layer: tf.function(sometimes(layer)),
}


@takes_long()
@pytest.mark.parametrize("how", KEPT)
def test_a_layer_without_rows_on_one_rank(how):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        layer = made(strategy).layers[0]
        strategy.run(KEPT[how](layer), (some_rows(strategy),))
        np.testing.assert_allclose(layer.moving_mean.numpy(), [1.5])
        assert_alike(strategy, [layer.moving_mean.numpy(), layer.moving_variance.numpy()])


def some_rows(strategy):
    """Return rows, but none on the last rank."""
    is_last = strategy.communicator.rank == strategy.communicator.size - 1
    return tf.constant(X[:0] if is_last else X[:4])


def test_a_layer_that_is_left_out_without_rows_is_told():
    told = "(?s)BatchNormalization.*with an empty batch"
    with refused(MismatchError, told), distribute.MirroredStrategy(["CPU:0"]) as strategy:
        layer = made(strategy).layers[0]
        strategy.run(sometimes(layer), (some_rows(strategy),))
        strategy.communicator.barrier()
    drop(strategy)


@takes_long()
def test_what_only_reads_is_local():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model = made(strategy)
        function = tf.function(lambda x: model(x, training=False))
        before = strategy.communicator.call_log.sequence
        if strategy.is_chief:
            for call in (function, model.call, within(function)):
                strategy.run(call, (tf.constant(X),))
                tf.function(strategy.run)(call, (tf.constant(X),))
        assert strategy.communicator.call_log.sequence == before


@takes_long()
def test_states_and_variables_stay_each_replicas_own():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        rank = strategy.communicator.rank
        keras_dtype("float64")
        with strategy.scope():
            rnn = keras.layers.SimpleRNN(1, stateful=True, kernel_initializer="ones")
            rnn.build((1, 1, 1))
            mine = tf.Variable(0.0, trainable=False)

        def step(x):
            mine.assign(x)
            return rnn(tf.reshape(tf.cast(x, tf.float64), [1, 1, 1]))

        strategy.run(tf.function(step), (tf.constant(float(rank)),))
        assert strategy.experimental_local_results(mine)[0].numpy() == rank
        (state,) = strategy.experimental_local_results(rnn.states[0].value)
        np.testing.assert_allclose(state.numpy(), [[np.tanh(rank)]])


class Scaled(keras.layers.Layer):
    """A layer with a weight of its own, made when it is first called, and one of another kind."""

    def build(self, _):
        self.largest = self.add_weight(shape=(), trainable=False, initializer="zeros")
        self.steps = self.add_weight(shape=(), dtype="int64", trainable=False, initializer="zeros")

    def call(self, x):
        self.largest.assign(tf.reduce_max(x))
        self.steps.assign_add(1)
        return x


class Lazy(keras.Model):
    """A model that is built while it is traced."""

    def __init__(self):
        super().__init__()
        self.inner = [Scaled(), keras.layers.Dense(1)]

    def call(self, x):
        for layer in self.inner:
            x = layer(x)
        return x


@takes_long()
def test_a_layer_of_ones_own_that_is_built_late():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        keras_dtype("float64")
        with strategy.scope():
            model = Lazy()
            model.compile("sgd", "mse")
        fit(model)
        assert_alike(strategy, model.get_weights())
        largest = [part.max() for part in np.split(X[12:], strategy.num_replicas_in_sync)]
        np.testing.assert_allclose(model.inner[0].largest.numpy(), np.mean(largest))
        assert model.inner[0].steps.numpy() == 2


# ----------------------------------------------------------------------- what is read and saved


@takes_long()
def test_callbacks_see_one_answer():
    seen = []

    class See(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.extend([self.model(X[:5]).numpy(), *self.model.get_weights()])

    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model = made(strategy, run_eagerly=True)
        history = fit(model, epochs=2, validation_data=(X, X), callbacks=[See()]).history
        assert len(seen) == 4 * 7
        assert_alike(strategy, [*seen, *history["val_loss"]])
        last = model.evaluate(X, X, batch_size=12, verbose=0)
        np.testing.assert_allclose(last, history["val_loss"][-1], rtol=1e-6)


SAVES = {
    "all": lambda strategy, save: save(),
    "the chief": lambda strategy, save: save() if strategy.is_chief else None,
}


@takes_long()
@pytest.mark.parametrize("by", [*SAVES, "a callback"])
def test_a_model_that_is_loaded_predicts_as_before(by):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        file = Path(strategy.communicator.bcast_object(tempfile.mkdtemp())) / "a.keras"
        model = made(strategy, run_eagerly=True)
        fit(model, callbacks=[keras.callbacks.ModelCheckpoint(file)] if by not in SAVES else [])
        want = model.predict(X, verbose=0)
        if by in SAVES:
            SAVES[by](strategy, lambda: model.save(file))
        strategy.communicator.barrier()
        again = keras.models.load_model(file)
        for one, other in zip(again.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(again.predict(X, verbose=0), want, rtol=1e-12)
        assert_alike(strategy, [want, *again.get_weights()])
