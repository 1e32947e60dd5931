"""Errors of Keras's fit with parameter servers."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.fit_on_servers import BATCH, STEPS, X, Y, compiled, sgd  # noqa: E402
from helpers.tf.parameter_servers import on_chief  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

# With 1 ps two workers, with 2 one.
pytestmark = pytest.mark.mpi(ranks=4, timeout_s=90)


class Checked(keras.Sequential):
    def train_step(self, data):
        tf.debugging.assert_less(data[0], 100.0, "a row too large")
        return super().train_step(data)


@takes_long()
def test_after_an_error_training_can_go_on():
    def chief(s, _):
        model = compiled(s.scope(), sgd, Checked)
        bad = X.copy()
        bad[150] = 1e6
        with refused(tf.errors.InvalidArgumentError, "a row too large"):
            model.fit(bad, Y, batch_size=BATCH, epochs=2, verbose=0)

        class Failing(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                raise KeyError("in a callback")

        with refused(KeyError, "in a callback"):
            model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=[Failing()])
        before = model.optimizer.iterations.numpy()
        logs = model.fit(X, Y, batch_size=BATCH, epochs=3, verbose=0).history["loss"]
        assert logs[0] > logs[2]
        assert model.optimizer.iterations.numpy() >= before + 3 * STEPS

    on_chief(chief)


@takes_long()
def test_what_cannot_be_sent_is_refused():
    def chief(s, _):
        model = compiled(s.scope(), sgd, run_eagerly=True)
        with refused(UsageError, "run_eagerly=True"):
            model.fit(X, Y, verbose=0)
        with refused(UsageError, "run_eagerly=True"):
            model.predict(X, verbose=0)

    on_chief(chief)


@takes_long()
def test_weights_in_parts_are_refused():
    def chief(s, _):
        model = compiled(s.scope(), sgd)
        with refused(UsageError, "divides sequential.*/kernel.* leave the partitioner out"):
            model.fit(X, Y, verbose=0)
        weights = [weight.numpy() for weight in model.weights]
        hidden = np.maximum(X @ weights[0] + weights[1], 0)
        found = model.predict(X, verbose=0)
        np.testing.assert_allclose(found, hidden @ weights[2] + weights[3], atol=1e-5)

    two = distribute.experimental.partitioners.FixedShardsPartitioner(2)
    on_chief(chief, num_ps=2, variable_partitioner=two)


def test_an_optimizer_that_no_scope_has_built():
    """Its first step on a worker makes what it keeps, beside the variables; no step is lost."""

    def chief(s, coordinator):
        with s.scope():
            w = tf.Variable([1.0, 2.0])
            optimizer = keras.optimizers.SGD(0.5, momentum=0.5)

        @tf.function
        def step():
            s.run(lambda: optimizer.apply_gradients([(tf.ones(2), w)]))

        for _ in range(3):
            coordinator.schedule(step)
            coordinator.join()  # two workers at the same time would add up in another order
        assert optimizer.iterations.numpy() == 3
        moved = 0.5 * (1 + 1.5 + 1.75)
        np.testing.assert_allclose(w.numpy(), [1 - moved, 2 - moved], rtol=1e-6)
        assert {one.value.device for one in optimizer.variables} == {w.device}

    on_chief(chief)


def test_an_optimizers_step_outside_of_run_says_so():
    def chief(s, coordinator):
        with s.scope():
            w = tf.Variable([1.0, 2.0])
            optimizer = keras.optimizers.SGD(0.5)

        @tf.function
        def step():
            optimizer.apply_gradients([(tf.ones(2), w)])

        with pytest.raises(Exception, match=r"outside of strategy.run under ParameterServerStr"):
            coordinator.schedule(step)

    on_chief(chief)
