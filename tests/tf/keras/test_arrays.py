"""Arrays under Keras: ranks copy their own rows only, and get the same ones as before."""

import contextlib
import gc
import itertools
import sys
import threading
import time

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - TensorFlow may be missing

import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import MismatchError, UsageError  # noqa: E402
from mpistrat.tensorflow.data import pipelines  # noqa: E402
from mpistrat.tensorflow.graph import native_library, rows_op  # noqa: E402
from mpistrat.tensorflow.keras import arrays as keras_arrays  # noqa: E402
from mpistrat.tensorflow.keras import hooks as keras_hooks  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
Adapter = keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter
TWO = ["CPU:0", "CPU:1"]


def make(count, batch, shuffle=False):
    """Return a function that makes an adapter of arrays in which each row has its number."""
    rows = np.arange(count, dtype=np.float32)
    x = {"a": rows[:, None] * [1, 10], "b": rows.astype(np.int32)}
    return lambda: Adapter(x, -rows, np.ones(count), batch_size=batch, shuffle=shuffle)


def own(s, adapter):
    keras_hooks.install()
    with keras_arrays._data_for(s):
        return adapter.get_tf_dataset()


def steps(s, dataset):
    """Return what this rank's replicas get, step by step."""
    local = s.experimental_local_results
    return [
        [[one.numpy().tolist() for one in local(leaf)] for leaf in tf.nest.flatten(step)]
        for step in dataset
    ]


@takes_long()
@pytest.mark.parametrize("devices", [["CPU:0"], TWO], ids=["1 device", "2 devices"])
@pytest.mark.parametrize(
    ("count", "batch"),
    [(24, 8), pytest.param(21, 8, marks=repeats()), (25, 8), (26, 7), (3, 8), (1, 1)],
)
def test_the_rows_are_those_of_a_divided_dataset(devices, count, batch):
    with distribute.MirroredStrategy(devices) as s:
        adapter = make(count, batch)
        want = s.experimental_distribute_dataset(adapter().get_tf_dataset())
        found = own(s, adapter())
        assert found.element_spec == want.element_spec
        assert steps(s, found) == steps(s, want)
    drop(s)


@takes_long()
@pytest.mark.parametrize("shuffle", [True, "batch"])
def test_each_row_comes_once_an_epoch_on_one_rank(shuffle):
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        dataset = own(s, make(21, 8, shuffle)())
        for _ in range(2):
            mine = [row for step in steps(s, dataset) for row in step[1][0]]
            both = s.communicator.allgather_object(mine)
            assert sorted(itertools.chain(*both)) == list(range(21))
    drop(s)


def epochs_of_all(s, dataset):
    """Return two epochs' rows, as all ranks have them."""
    found = []
    for _ in range(2):
        mine = [row for step in steps(s, dataset) for row in step[1][0]]
        found.append(list(itertools.chain(*s.communicator.allgather_object(mine))))
    return found


@takes_long()
@pytest.mark.parametrize("shuffle", [True, "batch"])
def test_epochs_and_fits_have_orders_of_their_own_without_a_seed(shuffle):
    tf.random.set_seed(None)
    for _ in range(2):  # the first strategy's seed is not the program's for the second one
        with distribute.MirroredStrategy(["CPU:0"]) as s:
            adapter = make(200, 16, shuffle)
            found = [order for _ in range(2) for order in epochs_of_all(s, own(s, adapter()))]
            assert all(sorted(order) == list(range(200)) for order in found)
            assert len(set(map(tuple, found))) == 4
        drop(s)


@takes_long()
def test_orders_with_one_seed_are_tensorflows():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        tf.random.set_seed(3)
        adapter = make(21, 8, True)
        want = epochs_of_all(s, s.experimental_distribute_dataset(adapter().get_tf_dataset()))
        assert epochs_of_all(s, own(s, adapter())) == want
    drop(s)
    tf.random.set_seed(None)


@takes_long()
def test_each_row_comes_once_where_ranks_have_seeds_of_their_own():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        tf.random.set_seed(s.communicator.rank)
        for order in epochs_of_all(s, own(s, make(200, 16, True)())):
            assert sorted(order) == list(range(200))
    drop(s)
    tf.random.set_seed(None)


def some_rows(indices):
    return tf.data.Dataset.from_tensors(tf.constant(indices, tf.int64))


def kinds():
    """Return arrays of kinds that are read in place, and of such that are not."""
    rows = np.arange(40)
    matrix = np.arange(320, dtype=np.int16).reshape(4, 40, 2)
    return {
        "long": rows[:, None] + np.zeros(7),
        "a byte": rows.astype(np.uint8),
        "bool": rows % 3 == 0,
        "complex": rows + 1j,
        "half": rows.astype(np.float16),
        "no columns": np.zeros((40, 0), np.float32),
        "every other": np.arange(80.0)[::2],
        "turned": np.moveaxis(matrix, 1, 0),
        "read only": np.frombuffer(bytes(rows.tolist()), np.uint8),
        "other bytes": rows.astype(">i4"),
        "strings": np.array([str(row) for row in rows]),
        "a tensor": tf.constant(rows),
        "bfloat16": tf.cast(rows, tf.bfloat16),
    }


@takes_long()
@pytest.mark.parametrize("is_native", [True, False])
def test_rows_of_arrays_of_all_kinds(is_native):
    found = kinds()
    with pytest.MonkeyPatch.context() as patch, distribute.MirroredStrategy(["CPU:0"]) as s:
        if not is_native:
            patch.setattr(native_library, "operations", lambda: None)
        dataset = keras_arrays._gathered(found, some_rows([39, 0, 7, 7]))
        (batch,) = dataset.map(lambda one: one)
        for name, rows in batch.items():
            want = tf.gather(tf.convert_to_tensor(found[name]), [39, 0, 7, 7])
            assert rows.dtype == want.dtype
            assert rows.numpy().tolist() == want.numpy().tolist(), name
    drop(s)


@takes_long()
def test_arrays_are_kept_as_long_as_a_dataset_reads_them():
    array = np.ones((6, 3))
    before = sys.getrefcount(array)
    dataset = keras_arrays._gathered((array,), tf.data.Dataset.range(6).batch(2))
    iterator = iter(dataset)
    del dataset
    gc.collect()
    assert sys.getrefcount(array) > before
    assert len(list(iterator)) == 3
    del iterator
    gc.collect()
    assert sys.getrefcount(array) == before


def test_an_index_without_a_row_is_an_error():
    dataset = keras_arrays._gathered((np.ones(3),), some_rows([0, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="index 3, but there are 3 rows"):
        list(dataset)


@takes_long()
def test_indices_that_another_thread_changes_are_refused_or_rows():
    arrays = rows_op.InPlace([np.ones((100, 3), np.float32)])
    memory, is_over = np.zeros(1008, np.int64), threading.Event()
    start = -memory.ctypes.data % 64 // 8  # TensorFlow wants lent memory so aligned
    indices = memory[start : start + 1000]
    lent = tf.experimental.dlpack.from_dlpack(indices.__dlpack__())

    def write():
        while not is_over.is_set():
            indices[:] = 1 << 40  # a read there would end the process
            indices[:] = 5

    thread = threading.Thread(target=write)
    thread.start()
    calls, seen, end = 0, [], time.monotonic() + 0.5
    while time.monotonic() < end:
        calls += 1
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            seen.append(bool((arrays.rows(lent, [])[0].numpy() == 1.0).all()))
    is_over.set()
    thread.join()
    assert all(seen)
    assert 0 < len(seen) < calls


def small_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


CALLS = {
    "fit": lambda model, x: model.fit(x, x[:, :1], batch_size=4, verbose=0),
    "evaluate": lambda model, x: model.evaluate(x, x[:, :1], batch_size=4, verbose=0),
    "predict": lambda model, x: model.predict(x, batch_size=4, verbose=0),
}


@takes_long()
@pytest.mark.parametrize("call", CALLS)
def test_unequal_numbers_of_rows_are_told(call):
    """Of equally many batches, too: rows would be left out, or counted twice."""
    with distribute.MirroredStrategy(["CPU:0"]) as s, s.scope():
        model = small_model()
        rank = s.communicator.rank
        with pytest.raises(UsageError, match=r"rows by rank: \[8, 7\]"):
            CALLS[call](model, np.ones((8 - rank, 3)))
        CALLS[call](model, np.ones((8, 3)))
    drop(s)


def test_one_rank_calls_another_method():
    with distribute.MirroredStrategy(["CPU:0"]) as s, s.scope():
        model, method = small_model(), "evaluate" if s.is_chief else "predict"
        told = "rank 0: .*for evaluate.*\n *rank 1: .*for predict"
        with pytest.raises(MismatchError, match=told):
            CALLS[method](model, np.ones((8, 3)))
    drop(s)


def test_unequal_batches_are_told():
    with distribute.MirroredStrategy(["CPU:0"]) as s, s.scope():
        model, x = small_model(), np.ones((8, 3))
        with pytest.raises(
            UsageError, match=r"batch_size by rank: \[4, 5\];.*rows of a batch of all"
        ):
            model.fit(x, x[:, :1], batch_size=4 + s.communicator.rank, verbose=0)
    drop(s)


@pytest.mark.parametrize("call", CALLS)
def test_no_rows_are_told(call):
    with distribute.MirroredStrategy(["CPU:0"]) as s, s.scope():
        model = small_model()
        with pytest.raises(UsageError, match="arrays with 0 rows"):
            CALLS[call](model, np.ones((0, 3)))
    drop(s)


@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_a_dataset_without_batches_is_told(call):
    empty = tf.data.Dataset.from_tensors((tf.ones([2, 3]), tf.ones([2, 1]))).take(0)
    with distribute.MirroredStrategy(["CPU:0"]) as s, s.scope():
        model = small_model()
        with pytest.raises(UsageError, match="a dataset without a batch"):
            getattr(model, call)(empty, verbose=0)
    drop(s)


def test_ragged_arrays_are_left_to_keras():
    class Ragged:
        _inputs = (tf.ragged.constant([[1.0], [2.0, 3.0]]),)
        _num_samples = _batch_size = 2

    with distribute.MirroredStrategy(["CPU:0"]) as s, keras_arrays._data_for(s):
        assert keras_arrays.own_rows(lambda _: "theirs")(Ragged()) == "theirs"
    drop(s)


def sparse_fit(strategy, count):
    """Return what is left of a fit of sparse rows; of the last batch a rank may have none."""
    x = tf.sparse.from_dense(np.eye(count, 5, dtype=np.float32))
    y = np.arange(count, dtype=np.float32)[:, None]
    with strategy.scope() if strategy else contextlib.nullcontext():
        inputs = keras.Input((5,), sparse=True)
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=strategy is None)
    how = {"batch_size": 4, "verbose": 0}
    losses = model.fit(x, y, epochs=2, shuffle=False, **how).history["loss"]
    return np.concatenate([losses, *model.get_weights(), model.predict(x, **how)], axis=None)


@takes_long()
@pytest.mark.parametrize(
    "count", [pytest.param(8, marks=repeats()), pytest.param(7, marks=repeats()), 5]
)
def test_sparse_rows_train_as_in_one_process(count):
    want = sparse_fit(None, count)
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        np.testing.assert_allclose(sparse_fit(s, count), want, rtol=1e-5)
    drop(s)


def tuning_of_iterators(monkeypatch):
    """Return the list of what TensorFlow is told of each pipeline whose iterator is made."""
    from tensorflow.python.data.ops import multi_device_iterator_ops as iterators

    told = []
    kind = iterators.OwnedMultiDeviceIterator
    init, make_device = kind.__init__, iterators._create_device_dataset

    def watched_init(self, dataset=None, *args, **kwargs):
        if dataset is not None:
            told.append(dataset.options().autotune.enabled)
        init(self, dataset, *args, **kwargs)

    def watched_make(*args, **kwargs):
        dataset = make_device(*args, **kwargs)
        told.append(dataset.options().autotune.enabled)
        return dataset

    monkeypatch.setattr(kind, "__init__", watched_init)
    monkeypatch.setattr(iterators, "_create_device_dataset", watched_make)
    return told


def tuning_of_plain_iterators(monkeypatch):
    """Return a list of whether what iterators on one device read is tuned, of those to come."""
    told, make = [], tf.data.Dataset.__iter__

    def watched(self):
        told.append(self.options().autotune.enabled)
        return make(self)

    monkeypatch.setattr(tf.data.Dataset, "__iter__", watched)
    return told


@pytest.mark.parametrize("devices", [["CPU:0"], TWO], ids=["1 device", "2 devices"])
@pytest.mark.parametrize("how", ["dataset", "function"])
def test_pipelines_are_not_tuned(how, devices):
    """The thread that tunes holds up whoever drops an iterator, for seconds."""
    with pytest.MonkeyPatch.context() as patch, distribute.MirroredStrategy(devices) as s:
        watched = tuning_of_iterators if len(devices) > 1 else tuning_of_plain_iterators
        told = watched(patch)
        data = tf.data.Dataset.range(8).batch(4)
        if how == "dataset":
            dataset = s.experimental_distribute_dataset(data)
        else:
            dataset = s.distribute_datasets_from_function(lambda _: data)
        assert sum(1 for _ in dataset) >= 1
        assert told == [False] * (3 if len(devices) > 1 else 1)
    drop(s)


def test_who_wants_tuning_gets_it():
    options = tf.data.Options()
    options.autotune.enabled = True
    data = tf.data.Dataset.range(8)
    assert pipelines.untuned(data).options().autotune.enabled is False
    assert pipelines.untuned(data.with_options(options)).options().autotune.enabled is True
    assert pipelines.untuned("no dataset") == "no dataset"


@takes_long()
def test_unseeded_pipelines_shuffle_alike_and_are_random_in_each_epoch():
    tf.random.set_seed(None)
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        rows = tf.data.Dataset.range(40).shuffle(40).map(lambda i: (i, tf.random.uniform([])))
        dataset = s.experimental_distribute_dataset(rows.batch(8))
        epochs = []
        for _ in range(2):
            mine = [
                pair
                for step in steps(s, dataset)
                for pair in zip(*(leaf[0] for leaf in step), strict=True)
            ]
            epochs.append(list(itertools.chain(*s.communicator.allgather_object(mine))))
        assert all(sorted(i for i, _ in epoch) == list(range(40)) for epoch in epochs)
        assert [i for i, _ in epochs[0]] != [i for i, _ in epochs[1]]
        assert len({u for epoch in epochs for _, u in epoch}) > 70
    drop(s)
