"""One model with data of all kinds, one after the other: arrays, data sets, generators."""

import contextlib
import functools
import gc
import itertools

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - it comes with TensorFlow

import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.tensorflow.graph import native_op  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = [pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=400), takes_long()]
COUNT, BATCH = 26, 8
X = np.random.default_rng(0).normal(size=(COUNT, 3)).astype("float32")
Y = X.sum(1)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return (COUNT + BATCH - 1) // BATCH

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows], Y[rows]


def dataset(_=None):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)


def generator(_):
    return (Batches()[index] for index in range(len(Batches())))


def with_options(s):
    options = tf.distribute.InputOptions(experimental_per_replica_buffer_size=2)
    return s.experimental_distribute_dataset(dataset(), options)


KINDS = {
    "arrays": lambda _: (X, Y),
    "dataset": lambda _: (dataset(),),
    "pydataset": lambda _: (Batches(),),
    "generator": lambda s: (generator(s),),
    "distributed": lambda s: (s.experimental_distribute_dataset(dataset()),),
    "with options": lambda s: (with_options(s),),
    "of a function": lambda s: (
        s.distribute_datasets_from_function(
            lambda context: (
                dataset()
                .unbatch()
                .shard(context.num_input_pipelines, context.input_pipeline_id)
                .batch(BATCH)
            )
        ),
    ),
}
DEVICES = [["CPU:0"], ["CPU:0", "CPU:1"]]


def model_in(s, run_eagerly=False):
    with s.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"], run_eagerly=run_eagerly)
    return model


@pytest.mark.parametrize("devices", DEVICES, ids=["1", "2"])
def test_fit_and_evaluate_take_data_of_any_kind_in_turn(devices):
    """All pairs of kinds, in one walk over them; or each kind before and after another one.

    On one device also each kind for the second time.
    """
    with distribute.MirroredStrategy(devices) as s:
        model = model_in(s)
        kinds = [kind for pair in itertools.permutations(KINDS, 2) for kind in pair]
        weights = model.get_weights()
        found = {}
        some = [*KINDS, *(["arrays"] if devices[1:] else reversed(KINDS))]
        for kind in kinds if with_all() else some:
            model.set_weights(weights)
            model.fit(*KINDS[kind](s), batch_size=BATCH, verbose=0, shuffle=False)
            error = model.evaluate(*KINDS[kind](s), batch_size=BATCH, verbose=0)
            np.testing.assert_allclose(error, found.setdefault(kind, error), rtol=1e-6)
        for kind, error in found.items():
            if kind != "of a function":  # whose batches are others
                np.testing.assert_allclose(error, found["arrays"], rtol=1e-5, err_msg=kind)
    drop(s)


def validation(kind, s):
    data = KINDS[kind](s)
    return data if len(data) == 2 else data[0]


@pytest.mark.parametrize("kind", KINDS)
def test_validation_data_of_another_kind(kind):
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        model = model_in(s, run_eagerly=kind not in ("arrays", "distributed"))  # others alike
        for other in ("arrays", "dataset"):
            data = validation(kind, s)
            options = {"batch_size": BATCH, "validation_batch_size": BATCH, "verbose": 0}
            logs = model.fit(*KINDS[other](s), validation_data=data, **options).history
            error = model.evaluate(*KINDS["dataset"](s), verbose=0)[0]
            np.testing.assert_allclose(logs["val_loss"][0], error, rtol=1e-5)
    drop(s)


def aligned(array):
    """Return a copy whose memory TensorFlow takes as it is."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


@pytest.mark.parametrize("devices", DEVICES, ids=["1", "2"])
@pytest.mark.parametrize("kind", ["pydataset", "generator"])
def test_the_programs_arrays_are_not_written_to(kind, devices):
    class Views(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            rows = slice(index * BATCH, (index + 1) * BATCH)
            return x[rows], y[rows]

    x, y = aligned(X), aligned(Y)
    with distribute.MirroredStrategy(devices) as s:
        model = model_in(s)
        for _ in range(2):
            views = Views()
            data = views if kind == "pydataset" else (views[i] for i in range(3))
            model.fit(data, verbose=0)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(y, Y)
    drop(s)


def uneven(convert, drawn):
    """Yield batches of unequal lengths in a seeded order, once; `drawn` gets their rows."""
    order = np.random.default_rng(5).permutation(COUNT)
    for rows in np.split(order, [3, 8, 16, 17, 24]):
        drawn.extend(rows)
        yield tuple(map(convert, (X[rows], Y[rows, None])))


def trained_once(scope, data, is_built):
    """Return the weights, the loss and the number of rows of the first epoch of a new model."""
    with scope:
        parts = [keras.Input((3,))] if is_built else []
        ones = keras.layers.Dense(1, kernel_initializer="ones")
        model = keras.Sequential([*parts, ones])
        rows, is_reference = Rows(name="rows"), isinstance(scope, contextlib.nullcontext)
        how = {"weighted_metrics": [rows], "run_eagerly": is_reference}
        model.compile(keras.optimizers.SGD(0.05), "mse", **how)
    logs = model.fit(data, verbose=0, shuffle=False).history
    return *model.get_weights(), logs["loss"][0], logs["rows"][0]


class Rows(keras.metrics.Sum):
    """Counts rows."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(tf.ones_like(y_true))


@functools.cache
def trained_in_one_process(is_built):
    """Return what `trained_once` gives without a strategy, of `uneven` batches."""
    batches = list(uneven(lambda array: array, []))
    data = tf.data.Dataset.from_generator(
        lambda: iter(batches),
        output_signature=(
            tf.TensorSpec([None, 3], tf.float32),
            tf.TensorSpec([None, 1], tf.float32),
        ),
    )
    return trained_once(contextlib.nullcontext(), data, is_built)


GIVEN = {"arrays": lambda array: array, "tensors": tf.constant}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("is_built", [False, True], ids=["new", "built"])
def test_a_generator_that_is_read_once_trains_a_new_model_with_all_rows(kind, is_built):
    want = trained_in_one_process(is_built)
    assert want[-1] == COUNT
    drawn = []
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        found = trained_once(s.scope(), uneven(GIVEN[kind], drawn), is_built)
        for mine, one in zip(found, want, strict=True):
            np.testing.assert_allclose(mine, one, rtol=1e-5)
    assert sorted(drawn) == list(range(COUNT))
    drop(s)


class Unreadable(keras.utils.PyDataset):
    """A data set one of whose batches some rank cannot read."""

    def __init__(self, index, **options):
        super().__init__(**options)
        self.index = index

    def __len__(self):
        return 30

    def __getitem__(self, index):
        if index == self.index:
            raise OSError("image 77 is broken")
        return X[:BATCH], Y[:BATCH, None]


UNREADABLE = [  # each pair of a call, its workers and a batch is in one of these, or in several
    *(("fit", 1, 0), ("fit", 2, 9), ("fit", 1, 29)),
    *(("evaluate", 2, 0), ("evaluate", 1, 9), ("evaluate", 2, 29)),
]


@pytest.mark.parametrize(
    ("call", "workers", "index"),
    list(itertools.product(("fit", "evaluate"), (1, 2), (0, 9, 29))) if with_all() else UNREADABLE,
)
def test_an_error_of_one_ranks_pydataset_is_told_on_all(call, workers, index):
    """Keras, with workers, has lost it with the iterator that a new model is built by."""
    # What a failed call leaves is freed at once, not within a later test's time: TensorFlow's
    # iterators may take as long to end as they have lived (see `steady`), with Python's lock held.
    gc.collect()
    native_op.load()  # compiled before the time counts
    with refused(Exception, "image 77 is broken"), distribute.MirroredStrategy(["CPU:0"]) as s:
        is_last = s.communicator.rank == s.communicator.size - 1
        data = Unreadable(index if is_last else -1, workers=workers)
        getattr(model_in(s), call)(data, verbose=0)
    drop(s)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pydataset_with_workers_trains_a_new_model_with_all_rows(workers):
    want = trained_once(contextlib.nullcontext(), dataset().map(column), False)
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        found = trained_once(s.scope(), Columns(workers=workers), False)
        for mine, one in zip(found, want, strict=True):
            np.testing.assert_allclose(mine, one, rtol=1e-5)
    drop(s)


def column(x, y):
    return x, y[:, None]


class Columns(Batches):
    def __getitem__(self, index):
        return column(*super().__getitem__(index))


def test_data_with_an_end_after_data_without_one():
    """The end of uneven data is seen by all, though a step was traced for endless data."""
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        model = model_in(s)
        endless = dataset().repeat()
        model.fit(endless, steps_per_epoch=2, verbose=0)
        one_more = tf.data.Dataset.from_tensor_slices((X, Y)).batch(1)  # uneven for the ranks
        for data in (one_more, (X, Y), endless):
            steps = 2 if data is endless else None
            parts = data if isinstance(data, tuple) else (data,)
            (loss,) = model.fit(*parts, steps_per_epoch=steps, verbose=0).history["loss"]
            assert np.isfinite([loss, *model.evaluate(*parts, steps=steps, verbose=0)]).all()
    drop(s)
