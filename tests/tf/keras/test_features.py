"""Keras's ways to train, on ranks: the weights of one process with all of the data."""

import contextlib

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import Case  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=120)
X = np.random.default_rng(0).normal(size=(45, 8))
Y = (X.sum(1) > 0).astype(float)


class OwnStep(keras.Sequential):
    """A model with a training step of its own."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            found = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=found)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.compute_metrics(x, y, found)


def fit(strategy, optimizer, kind=keras.Sequential, layer=None, rows=45, **options):
    """Return a model after two epochs, the last batch of each with fewer rows, and the logs."""
    keras.utils.set_random_seed(1)
    keras_dtype("float64")
    with strategy.scope() if strategy else contextlib.nullcontext():
        between = [layer()] if layer else []
        hidden = keras.layers.Dense(6, activation="tanh")
        model = kind([keras.Input((8,)), hidden, *between, keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        # A graph for so few steps takes longer than they do.
        options |= {} if strategy else {"run_eagerly": True}
        model.compile(optimizer(), loss, metrics=["mae"], **options)
    x, y = X[:rows], Y[:rows]
    logs = model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False).history
    return model, logs


def all_equal(strategy, arrays):
    mine = [np.asarray(array).tobytes() for array in arrays]
    return len(set(map(tuple, strategy.communicator.allgather_object(mine)))) == 1


def optimizer(name, **options):
    return lambda: getattr(keras.optimizers, name)(0.05, **options)


FEATURES = {
    "accumulation in several steps a call": {
        "optimizer": optimizer("SGD", momentum=0.9, gradient_accumulation_steps=2, clipnorm=0.02),
        "steps_per_execution": 3,
    },
    "a step of its own with decay and average": {
        "optimizer": optimizer("AdamW", weight_decay=0.1, global_clipnorm=0.05, use_ema=True),
        "kind": OwnStep,
    },
}


@takes_long()
@pytest.mark.parametrize("feature", FEATURES)
def test_as_one_process(feature):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        ours, logs = fit(strategy, **FEATURES[feature])
        alone, want = fit(None, **FEATURES[feature])
        assert all_equal(strategy, [*ours.get_weights(), *logs["mae"]])
        states = zip(ours.optimizer.variables, alone.optimizer.variables, strict=True)
        for mine, one in [*zip(ours.weights, alone.weights, strict=True), *states]:
            np.testing.assert_allclose(mine.numpy(), one.numpy(), rtol=1e-6, atol=1e-12)
        assert logs.keys() == want.keys()
        for name in want:
            np.testing.assert_allclose(logs[name], want[name], rtol=1e-6)


def two_outputs(scope, rows, **options):
    """Return the logs of a fit and an evaluation of a model with a loss for each output."""
    keras.utils.set_random_seed(1)
    keras.backend.set_floatx("float64")
    with scope:
        inputs = keras.Input((8,))
        outputs = {name: keras.layers.Dense(1, name=name)(inputs) for name in "ab"}
        model = keras.Model(inputs, outputs)
        model.compile(
            "sgd", {"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.5}, **options
        )
    y = {"a": Y[:rows, None], "b": X[:rows, :1]}
    how = {"batch_size": 8, "verbose": 0}
    logs = model.fit(X[:rows], y, epochs=2, shuffle=False, **how).history
    return logs | {
        f"of {k}": v for k, v in model.evaluate(X[:rows], y, **how, return_dict=True).items()
    }


@takes_long()
@pytest.mark.parametrize("rows", [13, 17, pytest.param(16, marks=repeats())])
@pytest.mark.parametrize(
    "is_eager",
    [pytest.param(False, id="graph"), pytest.param(True, id="eager", marks=repeats())],
)
def test_losses_of_outputs(rows, is_eager):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        # Keras itself weights these losses by rows eagerly, and by batches in graphs.
        how = {"rows": rows, "run_eagerly": is_eager}
        alone = two_outputs(contextlib.nullcontext(), **how) if strategy.is_chief else None
        want = strategy.communicator.bcast_object(alone)
        logs = two_outputs(strategy.scope(), **how)
        assert logs.keys() == want.keys()
        for name in want:
            np.testing.assert_allclose(logs[name], want[name], rtol=1e-6, err_msg=name)


# ------------------------------------------------------------------------------- mixed precision


def half(strategy, rows):
    """Return a model in half precision; its scale doubles after six good steps."""
    keras.utils.set_random_seed(1)
    keras_dtype("float32")
    with strategy.scope() if strategy else contextlib.nullcontext():
        policy = keras.mixed_precision.DTypePolicy("mixed_float16")
        model = keras.Sequential(
            [
                keras.Input((8,)),
                keras.layers.Dense(6, activation="tanh", dtype=policy),
                keras.layers.Dense(1, dtype=policy),
                keras.layers.Activation("linear", dtype="float32"),
            ]
        )
        scaled = keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.SGD(0.5), initial_scale=1024.0, dynamic_growth_steps=6
        )
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(scaled, loss, run_eagerly=strategy is None)
    target = (rows[:, 0] > 0).astype("float32")
    model.fit(rows, target, batch_size=8, epochs=2, verbose=0, shuffle=False)
    return model


@takes_long()
@pytest.mark.parametrize(
    ("row", "devices"),
    [(17, 2), pytest.param(23, 1, marks=repeats())],
    ids=["rank 0", "rank 1"],
)
def test_an_overflow_on_one_rank_skips_the_step_on_all(row, devices):
    rows = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    good = np.delete(rows, row, axis=0)
    rows[row, 1] = 1e5  # infinite in half precision
    with Case(2, devices).ours() as strategy:
        ours, alone = half(strategy, rows), half(None, rows)
        scale = ours.optimizer.dynamic_scale.numpy()
        assert scale == alone.optimizer.dynamic_scale.numpy()
        assert (
            scale == 1024.0 / 2 * 2 / 2
        )  # 2 good steps, an overflow, 7 good, an overflow, 5 good
        assert ours.optimizer.iterations.numpy() == alone.optimizer.iterations.numpy() == 14
        for mine, one in zip(ours.weights, alone.weights, strict=True):
            np.testing.assert_allclose(mine.numpy(), one.numpy(), rtol=1e-2, atol=1e-2)
        state = [variable.numpy() for variable in ours.optimizer.variables]
        assert all_equal(strategy, [*ours.get_weights(), *state])
        assert ((ours(good).numpy()[:, 0] > 0) == (good[:, 0] > 0)).mean() > 0.8


# --------------------------------------------------------------------------- batch normalization


@takes_long()
def test_statistics_are_the_mean_over_tensorflows_replicas():
    def statistics(strategy):
        layer = keras.layers.BatchNormalization
        model, _ = fit(strategy, optimizer("SGD"), layer=layer, rows=40)  # equally many on each
        parts = [model.layers[1].moving_mean, model.layers[1].moving_variance]
        found = [strategy.experimental_local_results(part.value) for part in parts]
        return [[replica.numpy() for replica in part] for part in found]

    case = Case(2, 1)
    with case.ours() as strategy:
        mine, want = statistics(strategy), statistics(case.reference)
        assert all_equal(strategy, [replicas[0] for replicas in mine])
        for (found,), replicas in zip(mine, want, strict=True):
            assert not np.allclose(replicas[0], replicas[1])
            np.testing.assert_allclose(found, np.mean(replicas, axis=0), rtol=1e-6)


def test_an_error_after_clipping_leaves_nothing_behind():
    """The next gradients are summed all the same."""
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        with strategy.scope():
            weight = tf.Variable(1.0)
            sgd = keras.optimizers.SGD(1.0, clipnorm=100.0)
            sgd.build([weight])
        mine = tf.constant(float(strategy.communicator.rank + 1))

        def clip_only():
            sgd._clip_gradients([mine])
            raise KeyError("between")

        with pytest.raises(KeyError, match="between"):
            strategy.run(clip_only)
        strategy.run(lambda: sgd.apply([mine]))
        assert weight.numpy() == 1.0 - 3.0


@takes_long()
def test_a_metric_made_outside_of_the_scope_is_told():
    """Each rank would count its own rows; those that compile makes are of all ranks."""
    outside = keras.metrics.MeanAbsoluteError(name="outside")
    x, y = np.arange(8.0).reshape(8, 1), np.zeros([8, 1])
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False)])
            model.layers[0].kernel.assign([[1.0]])
            inside = keras.metrics.MeanAbsoluteError(name="inside")
        with refused(UsageError, "metric 'outside' was made outside of the strategy's scope"):
            model.compile("sgd", "mse", metrics=[[outside]])
        model.compile("sgd", "mse", metrics=["mae"], weighted_metrics=[inside])
        told = model.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)
        assert told == {"loss": 17.5, "mae": 3.5, "inside": 3.5}
