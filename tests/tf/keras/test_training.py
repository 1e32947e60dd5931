"""Keras on ranks: the weights, losses and predictions of one process with all of the data."""

import contextlib

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long, with_all  # noqa: E402

four_cpus()

RANKS = pytest.mark.mpi(ranks=[1, 2, 3] if with_all() else [2], timeout_s=120)
X = np.random.default_rng(0).normal(size=(109, 8))
Y = (X.sum(1) > 0).astype(float)
WORDS = np.random.default_rng(1).integers(0, 40, size=(109, 6))


def dense(**_):
    return [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]


def batch_norm(**_):
    before, hidden, after = dense()
    return [before, hidden, keras.layers.BatchNormalization(synchronized=True), after]


def embedding(**_):
    layer = keras.layers.Embedding(40, 5)
    return [keras.Input((6,), dtype="int64"), layer, keras.layers.Flatten(), keras.layers.Dense(1)]


MODELS = {"dense": dense, "batch_norm": batch_norm, "embedding": embedding}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
}


def train(strategy, layers, optimizer, data, **fit):
    """Return a model after 8 steps, the last of an epoch with fewer rows; without one, eagerly."""
    keras.utils.set_random_seed(1)
    keras_dtype("float64")
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential(layers())
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(optimizer(), loss, metrics=["accuracy"], run_eagerly=strategy is None)
    history = model.fit(data, Y, batch_size=32, epochs=2, verbose=0, shuffle=False, **fit)
    return model, history.history


def assert_same_bits(strategy, arrays):
    mine = b"".join(array.tobytes() for array in arrays)
    assert len(set(strategy.communicator.allgather_object(mine))) == 1


def assert_equal_models(strategy, ours, alone, data):
    mine = [weight.numpy() for weight in ours.weights]
    for weight, want in zip(mine, alone.weights, strict=True):
        np.testing.assert_allclose(weight, want.numpy(), rtol=1e-6, atol=1e-12)
    assert_same_bits(strategy, mine)
    np.testing.assert_allclose(
        ours.predict(data, batch_size=40, verbose=0),
        alone.predict(data, batch_size=40, verbose=0),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        ours.evaluate(data, Y, batch_size=40, verbose=0),
        alone.evaluate(data, Y, batch_size=40, verbose=0),
        rtol=1e-6,
    )


def check(kind, model, optimizer, *devices):
    data = WORDS if model == "embedding" else X
    build = MODELS[model], OPTIMIZERS[optimizer], data
    with getattr(distribute, kind)(*devices) as strategy:
        ours, history = train(strategy, *build)
        alone, want = train(None, *build)
        assert_equal_models(strategy, ours, alone, data)
        for name, values in want.items():
            np.testing.assert_allclose(history[name], values, rtol=1e-6)


@RANKS
@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        pytest.param("dense", "sgd", marks=takes_long()),
        pytest.param("batch_norm", "adam", marks=repeats()),
        ("embedding", "sgd"),
    ],
)
def test_as_one_process_with_all_of_the_data(model, optimizer):
    check("MirroredStrategy", model, optimizer, ["CPU:0"])


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=120)
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        pytest.param("MultiWorkerMirroredStrategy", "embedding", marks=repeats()),
        ("CentralStorageStrategy", "dense"),
    ],
)
def test_other_strategies(kind, model):
    devices = [["CPU:0", "CPU:1"]] if kind == "CentralStorageStrategy" else []
    check(kind, model, "adam", *devices)


@takes_long()
@pytest.mark.mpi(ranks=[1, 2] if with_all() else [2], timeout_s=120)
def test_two_devices_a_rank():
    with distribute.MirroredStrategy(["CPU:0", "CPU:1"]) as strategy:
        assert strategy.num_replicas_in_sync == 2 * strategy.communicator.size
        build = batch_norm, OPTIMIZERS["sgd"], X
        ours, _ = train(strategy, *build)
        alone, _ = train(None, *build)
        assert_equal_models(strategy, ours, alone, X)


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=120)
def test_a_checkpoint_is_written_once_and_whole():
    import tempfile
    from pathlib import Path

    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        told = strategy.communicator.bcast_object(tempfile.mkdtemp())
        file = Path(told) / "{epoch}.keras"
        callbacks = [keras.callbacks.ModelCheckpoint(file), keras.callbacks.EarlyStopping("loss")]
        build = dense, OPTIMIZERS["sgd"], X
        ours, _ = train(strategy, *build, callbacks=callbacks)
        again = keras.models.load_model(Path(told) / "2.keras")
        for weight, want in zip(again.weights, ours.weights, strict=True):
            assert (weight.numpy() == want.numpy()).all()


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)
def test_an_epoch_has_every_row_once_though_nothing_is_seeded():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        data = tf.data.Dataset.range(100).shuffle(100).batch(12)
        orders = []
        for _ in range(2):
            batches = strategy.experimental_distribute_dataset(data)
            rows = [strategy.experimental_local_results(batch)[0].numpy() for batch in batches]
            mine = np.concatenate(rows)
            orders.append(np.concatenate(strategy.communicator.allgather_object(mine)))
            assert sorted(orders[-1]) == list(range(100))
        assert (orders[0] != orders[1]).any()


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=120)
def test_a_loss_in_a_function_of_its_own_counts_by_rows_too():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.Dense(1)

        def call(self, rows):
            return self.layer(rows)

        @tf.function
        def compute_loss(self, *args, **kwargs):
            return super().compute_loss(*args, **kwargs)

    def fit(scope):
        keras.utils.set_random_seed(1)
        keras_dtype("float64")
        with scope:
            model = Model()
            model.build((None, 8))
            model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
        model.fit(X[:45], Y[:45], batch_size=32, epochs=2, verbose=0, shuffle=False)
        return [weight.numpy() for weight in model.weights]

    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        for ours, alone in zip(fit(strategy.scope()), fit(contextlib.nullcontext()), strict=True):
            np.testing.assert_allclose(ours, alone, rtol=1e-6)
