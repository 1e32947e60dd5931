"""Keras's fit, evaluate and predict with parameter servers, which TensorFlow's own refuses."""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.mistakes import refused  # noqa: E402
from helpers.tf.fit_on_servers import BATCH, ROWS, STEPS, X, Y, compiled, sgd  # noqa: E402
from helpers.tf.parameter_servers import on_chief  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

# With 1 ps two workers, with 2 one.
pytestmark = pytest.mark.mpi(ranks=4, timeout_s=90)

IDS = np.arange(1.0, ROWS + 1).reshape(-1, 1).astype("float32")


# ----------------------------------------------------------------------------------- results


@takes_long()
def test_one_worker_gives_what_one_process_gives():
    def chief(s, _):
        models, logs = [], []
        for scope in (s.scope(), contextlib.nullcontext()):
            model = compiled(scope, sgd)
            held = (X[:77], Y[:77])
            how = {"batch_size": BATCH, "epochs": 3, "verbose": 0, "shuffle": False}
            logs.append(model.fit(X, Y, validation_data=held, **how).history)
            models.append(model)
        ours, alone = models
        assert {weight.value.device.split("/")[1] for weight in ours.weights} == {"job:ps"}
        assert logs[0].keys() == logs[1].keys() == {"loss", "mae", "val_loss", "val_mae"}
        for name, values in logs[1].items():
            np.testing.assert_allclose(logs[0][name], values, rtol=1e-5)
        for mine, want in zip(ours.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-6)
        assert ours.optimizer.iterations.numpy() == 3 * STEPS
        np.testing.assert_allclose(
            ours.evaluate(X, Y, verbose=0), alone.evaluate(X, Y, verbose=0), rtol=1e-5
        )
        batch = X[:BATCH], Y[:BATCH]
        for call in ("test_on_batch", "train_on_batch", "test_on_batch"):
            mine, want = getattr(ours, call)(*batch), getattr(alone, call)(*batch)
            np.testing.assert_allclose(mine, want, rtol=1e-4)

    on_chief(chief, num_ps=2)


@takes_long()
def test_b94_two_workers_learn():
    def chief(s, _):
        model = compiled(s.scope(), lambda: keras.optimizers.Adam(0.01))
        logs = model.fit(X, Y, batch_size=BATCH, epochs=6, verbose=0).history["loss"]
        assert len(logs) == 6
        assert logs[0] > logs[2] > logs[5]
        assert model.optimizer.iterations.numpy() == 6 * STEPS
        assert ((model.predict(X, verbose=0) > 0) == Y).mean() > 0.9

    on_chief(chief)


@takes_long()
@pytest.mark.mpi(ranks=1, timeout_s=90)
def test_in_one_process_the_roles_are_threads():
    test_b94_two_workers_learn()


@keras.saving.register_keras_serializable()
class Seen(keras.metrics.Metric):
    """What rows there were: their number, and the sums of their targets and of the squares."""

    def __init__(self, power, name=None):
        super().__init__("float64", name or f"power{power}")
        self.power = power
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(tf.reduce_sum(tf.cast(y_true, "float64") ** self.power))

    def result(self):
        return self.total.value + 0


def without_python(rows, ids):
    return tf.data.Dataset.from_tensor_slices((rows, ids))


def looked_up(ids):
    words = keras.layers.StringLookup(vocabulary=[str(i) for i in range(1, ROWS + 1)])
    return words(tf.strings.as_string(tf.cast(ids, "int64")))


def generated():
    for start in range(0, ROWS, BATCH):
        yield X[start : start + BATCH], IDS[start : start + BATCH]


class Pages(keras.utils.PyDataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return list(generated())[index]


DATA = {
    "arrays": lambda: ((X, IDS), {"batch_size": BATCH}),
    "arrays in steps of several": lambda: ((X, IDS), {"batch_size": BATCH}),
    "shuffled": lambda: ((without_python(X, IDS).shuffle(ROWS).batch(BATCH),), {}),
    "shuffled inside": lambda: (
        (
            tf.data.Dataset.range(1)
            .flat_map(lambda _: without_python(X, IDS).shuffle(ROWS))
            .apply(tf.data.experimental.assert_cardinality(ROWS))
            .batch(BATCH),
        ),
        {},
    ),
    "through a table": lambda: (
        (without_python(X, IDS).batch(BATCH).map(lambda x, y: (x, looked_up(y))),),
        {},
    ),
    "of no known length": lambda: (
        (without_python(X, IDS).filter(lambda *_: True).batch(BATCH),),
        {},
    ),
    "without end": lambda: (
        (without_python(X, IDS).batch(BATCH).repeat(),),
        {"steps_per_epoch": STEPS},
    ),
    "pages": lambda: ((Pages(),), {}),
    "with weights": lambda: (
        (X, IDS),
        {"batch_size": BATCH, "sample_weight": np.ones(ROWS), "shuffle": "batch"},
    ),
}


ON_WORKERS = {
    *("arrays", "arrays in steps of several", "shuffled", "without end", "with weights"),
    "through a table",
}


NAMES = DATA if with_all() else ("arrays in steps of several",)


@takes_long()
def test_an_epoch_has_every_row_once():
    def chief(s, _):
        for name in NAMES:
            data, how = DATA[name]()
            model = compiled(
                s.scope(),
                sgd,
                metrics=[Seen(0), Seen(1), Seen(2)],
                steps_per_execution=3 if "several" in name else 1,
            )
            logs = model.fit(*data, epochs=2, verbose=0, **how).history
            for power in range(3):
                want = [(IDS.astype("float64") ** power).sum()] * 2
                assert logs[f"power{power}"] == want, name
            assert model.optimizer.iterations.numpy() == 2 * STEPS, name
            assert model.train_function.data.is_on_workers == (name in ON_WORKERS), name

    on_chief(chief)


@takes_long()
def test_generators_and_other_arguments():
    def chief(s, _):
        model = compiled(s.scope(), sgd, metrics=[Seen(0)])
        assert model.fit(generated(), verbose=0).history["power0"] == [ROWS]
        how = {"validation_split": 0.2, "class_weight": {0: 1.0, 1: 2.0}, "verbose": 0}
        logs = model.fit(X, Y, batch_size=BATCH, **how).history
        assert (logs["power0"], logs["val_power0"]) == ([240.0], [61.0])
        assert model.evaluate(X, Y, verbose=0, return_dict=True)["power0"] == ROWS
        assert model.evaluate(X, Y, batch_size=BATCH, steps=2, verbose=0)[1] == 2 * BATCH

    on_chief(chief)


@takes_long()
def test_data_that_the_program_has_distributed():
    """As under TensorFlow's other strategies; here all workers have the whole data set."""

    def chief(s, coordinator):
        def distributed(data):
            data = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
            return s.experimental_distribute_dataset(data)

        model = compiled(s.scope(), sgd, metrics=[Seen(0)])
        both = {"validation_data": distributed((X[:77], Y[:77])), "verbose": 0}
        logs = model.fit(distributed((X, Y)), epochs=2, **both).history
        assert (logs["power0"], logs["val_power0"]) == ([ROWS] * 2, [77.0] * 2)
        found = model.predict(distributed(X), verbose=0)
        np.testing.assert_allclose(found, model.predict(X, verbose=0), atol=1e-6)

        def dataset_fn(*_):
            return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)

        of_workers = coordinator.create_per_worker_dataset(dataset_fn)
        for data in (s.distribute_datasets_from_function(dataset_fn), of_workers):
            with refused(UsageError, "expected the tf.data.Dataset itself"):
                model.fit(data, steps_per_epoch=2, verbose=0)

    on_chief(chief)


def test_distributed_data_is_not_iterated_over_on_the_chief():
    """The error names what fit takes; TensorFlow's names something that fit refuses, too."""

    def chief(s, coordinator):
        def dataset_fn(*_):
            return tf.data.Dataset.from_tensor_slices(X).batch(BATCH)

        for data in (
            s.experimental_distribute_dataset(dataset_fn()),
            s.distribute_datasets_from_function(dataset_fn),
        ):
            with refused(UsageError, "give fit, evaluate and predict the tf.data.Dataset itself"):
                iter(data)
            iterator = iter(coordinator.create_per_worker_dataset(data))
            sums = [coordinator.schedule(total, (iterator,)) for _ in range(2)]
            expected = X[:BATCH].sum() + X[BATCH : 2 * BATCH].sum()
            np.testing.assert_allclose(sum(coordinator.fetch(sums)), expected, rtol=1e-3)

    @tf.function
    def total(iterator):
        return tf.reduce_sum(next(iterator))

    on_chief(chief, num_ps=2)


@takes_long()
def test_predictions_are_in_order():
    def chief(s, _):
        with s.scope():
            rows = keras.Input((8,))
            both = {"sum": keras.ops.sum(rows, axis=1), "twice": 2 * rows}
            model = keras.Model(rows, both)
        dataset = tf.data.Dataset.from_tensor_slices(X).batch(7)
        for found in (
            model.predict(X, batch_size=7, verbose=0),
            model.predict(dataset, verbose=0),
            model.predict_on_batch(X),
        ):
            assert np.array_equal(found["twice"], 2 * X)
            np.testing.assert_allclose(found["sum"], X.sum(1), rtol=1e-4, atol=1e-5)

    on_chief(chief)


# --------------------------------------------------------------------------------- callbacks


class Steps(keras.Sequential):
    """A model with a step of its own, which logs what is no metric."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"steps": self.optimizer.iterations.value + 0}


@takes_long()
def test_logs_of_a_step_of_its_own_are_those_of_the_last():
    def chief(s, _):
        model = compiled(s.scope(), sgd, Steps)
        logs = model.fit(X, Y, batch_size=BATCH, epochs=3, verbose=0).history
        assert logs == {"steps": [STEPS, 2 * STEPS, 3 * STEPS]}

    on_chief(chief, num_ps=2)


@takes_long()
def test_callbacks():
    class Seeing(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.batches, self.losses = [], []

        def on_train_batch_end(self, batch, logs=None):
            self.batches.append(batch)
            self.losses.append(logs["loss"])

    class Stopping(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 3

    def chief(s, _):
        model, seeing = compiled(s.scope(), sgd), Seeing()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "best.keras"
            callbacks = [
                seeing,
                keras.callbacks.ModelCheckpoint(file, monitor="loss", save_best_only=True),
                keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
                keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=2),
                keras.callbacks.BackupAndRestore(Path(folder) / "backup"),
            ]
            logs = model.fit(X, Y, batch_size=BATCH, epochs=9, verbose=0, callbacks=callbacks)
            assert seeing.batches == [*range(STEPS)] * 3  # then it was stopped
            assert np.isfinite(seeing.losses).all()
            assert logs.history["learning_rate"] == pytest.approx([0.1, 0.05, 0.1 / 3])
            again = keras.models.load_model(file)
            loss = again.evaluate(X, Y, verbose=0)[0]
            assert loss == pytest.approx(model.evaluate(X, Y, verbose=0)[0], rel=1e-5)
        model = compiled(s.scope(), sgd)
        model.fit(X, Y, batch_size=BATCH, epochs=3, verbose=0, callbacks=[Stopping()])
        assert model.optimizer.iterations.numpy() == 4

    on_chief(chief)
