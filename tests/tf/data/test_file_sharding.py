"""Data sets of files under strategies of ranks: the order of predictions, few files, caches."""

import gc
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - it comes with TensorFlow

import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.tensorflow.data import cache_files  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=90)
POLICY = tf.data.experimental.AutoShardPolicy
COUNTS = (7, 6, 8, 9)
ROWS = np.arange(sum(COUNTS), dtype=np.float32)


def write(folder, files, kind="tfrecord", plus=0):
    """Write rows to files, once for all ranks of this machine; return their paths."""
    ends = np.cumsum((0, *COUNTS[: files - 1], sum(COUNTS[files - 1 :])))
    paths = [str(Path(folder, f"{i}.{kind}")) for i in range(files)]
    for path, first, last in zip(paths, ends, ends[1:], strict=False):
        text = [str(int(row) + plus) for row in ROWS[first:last]]
        if kind == "tfrecord":
            with tf.io.TFRecordWriter(path) as writer:
                for one in text:
                    writer.write(one.encode())
        else:
            Path(path).write_text("\n".join(text))
    return paths


def read(paths, kind="tfrecord"):
    readers = {
        "tfrecord": tf.data.TFRecordDataset,
        "txt": tf.data.TextLineDataset,
        "csv": lambda paths: tf.data.experimental.CsvDataset(paths, [tf.float32]).map(
            tf.strings.as_string
        ),
    }
    numbers = readers[kind](paths).map(tf.strings.to_number)
    return numbers.map(lambda row: (row[None], row)).batch(4)


def by(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def double(strategy, is_traced=False):
    """Return a model that doubles rows; what is read of files does not depend on tracing."""
    with strategy.scope():
        twice = keras.layers.Dense(1, use_bias=False, kernel_initializer=twos)
        model = keras.Sequential([keras.Input((1,)), twice])
        model.compile("sgd", "mse", metrics=["mae"], run_eagerly=not is_traced)
    return model


def twos(shape, dtype=None):
    return tf.fill(shape, tf.constant(2, dtype))


def rows_of(strategy, steps):
    """Return all rows that the ranks get, sorted."""
    parts = [part for step in steps for part in strategy.experimental_local_results(step[1])]
    mine = [row for part in parts for row in np.ravel(part).tolist()]
    return sorted(row for rows in strategy.communicator.allgather_object(mine) for row in rows)


DIVIDED = {
    "as TensorFlow chooses": lambda dataset: dataset,
    "by files": lambda dataset: by(dataset, POLICY.FILE),
    "by rows": lambda dataset: by(dataset, POLICY.DATA),
    "interleaved": None,
}


def ways_to_divide():
    """Return each with one device, and with two by files (as TensorFlow chooses) and by rows."""
    on_two = DIVIDED if with_all() else ("as TensorFlow chooses", "by rows")
    return [(how, 1) for how in DIVIDED] + [
        pytest.param(how, 2, marks=takes_long()) for how in on_two
    ]


@takes_long()
@pytest.mark.parametrize(("how", "devices"), ways_to_divide())
def test_predictions_are_in_the_order_of_the_data(how, devices):
    names = [f"CPU:{i}" for i in range(devices)]
    with tempfile.TemporaryDirectory() as folder, distribute.MirroredStrategy(names) as s:
        paths = write(folder, 4)
        dataset = read(paths)
        if how == "interleaved":
            files = tf.data.Dataset.from_tensor_slices(paths)
            texts = files.interleave(tf.data.TFRecordDataset, cycle_length=2)
            numbers = texts.map(tf.strings.to_number)
            dataset = numbers.map(lambda row: (row[None], row)).batch(4)
        else:
            dataset = DIVIDED[how](dataset)
        want = np.concatenate([row for _, row in dataset.as_numpy_iterator()])
        model = double(s, is_traced=how == "as TensorFlow chooses")
        np.testing.assert_array_equal(model.predict(dataset, verbose=0).ravel(), 2 * want)
        given = s.experimental_distribute_dataset(dataset)
        np.testing.assert_array_equal(model.predict(given, verbose=0).ravel(), 2 * want)
        # evaluate divides files as before; all rows count once
        _, error = model.evaluate(dataset, verbose=0)
        np.testing.assert_allclose(error, ROWS.mean(), rtol=1e-6)
    drop(s)


@takes_long()
@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("files", [1, 4])
def test_a_cache_holds_all_rows_for_all_who_read_it(where, files):
    with tempfile.TemporaryDirectory() as folder, distribute.MirroredStrategy(["CPU:0"]) as s:
        shared = s.communicator.bcast_object(folder)  # a file that all ranks would write to
        dataset = read(write(folder, files)).cache(f"{shared}/cache" if where == "file" else "")
        model = double(s)
        for _ in range(2):
            _, error = model.evaluate(dataset, verbose=0)
            np.testing.assert_allclose(error, ROWS.mean(), rtol=1e-6)
        if where == "memory" or s.is_chief:
            rows = np.concatenate([row for _, row in dataset.as_numpy_iterator()])
            np.testing.assert_array_equal(rows, ROWS)
        s.communicator.barrier()
        np.testing.assert_array_equal(model.predict(dataset, verbose=0).ravel(), 2 * ROWS)
        assert rows_of(s, s.experimental_distribute_dataset(dataset)) == ROWS.tolist()
        s.communicator.barrier()  # before rank 0 removes its folder
    drop(s)


@takes_long()
def test_what_was_cached_is_not_read_again():
    with tempfile.TemporaryDirectory() as folder, distribute.MirroredStrategy(["CPU:0"]) as s:
        paths = write(folder, 4)
        dataset = read(paths).cache()
        model = double(s)
        want = model.evaluate(dataset, verbose=0)
        for path in paths:
            Path(path).unlink()
        for _ in range(3):
            gc.collect()  # of the divisions before, one of which owned the memory
            assert model.evaluate(dataset, verbose=0) == want
    drop(s)


@takes_long()
@pytest.mark.parametrize("when", ["in one run", "between runs"])
@pytest.mark.parametrize("files", [1, 4], ids=["by rows", "by files"])
def test_a_cache_that_the_program_removes_is_made_anew_on_all_ranks(files, when):
    with tempfile.TemporaryDirectory() as folder, distribute.MirroredStrategy(["CPU:0"]) as s:
        shared = s.communicator.bcast_object(folder)
        model, is_by_files = double(s), files > 1

        def error():
            s.communicator.barrier()
            dataset = read(paths).cache(f"{shared}/cache")
            found = model.evaluate(dataset, verbose=0)[1]
            s.communicator.barrier()
            return found

        paths = write(folder, files)
        np.testing.assert_allclose(error(), ROWS.mean(), rtol=1e-6)
        paths = write(folder, files, plus=100)
        if when == "between runs":
            cache_files._was_complete.clear()
        else:
            np.testing.assert_allclose(error(), ROWS.mean(), rtol=1e-6)
        if s.is_chief:
            own = f"cache.files_0_of_{s.communicator.size}" if is_by_files else "cache"
            for end in ("index", "data-00000-of-00001"):
                Path(folder, f"{own}.{end}").unlink()
        np.testing.assert_allclose(error(), ROWS.mean() + 100, rtol=1e-6)
        for path in paths:
            Path(path).write_bytes(b"")
        np.testing.assert_allclose(error(), ROWS.mean() + 100, rtol=1e-6)
    drop(s)


@takes_long()
def test_a_cache_that_one_process_makes_anew_is_made_anew_by_ranks():
    with tempfile.TemporaryDirectory() as folder, distribute.MirroredStrategy(["CPU:0"]) as s:
        shared = s.communicator.bcast_object(folder)
        model, path = double(s), f"{shared}/cache"
        for plus in (0, 100):
            paths = write(folder, 1, plus=plus)
            dataset = read(paths).cache(path)
            cache_files._was_complete.clear()
            if plus and s.is_chief:
                for file in (f"{path}.index", f"{path}.data-00000-of-00001"):
                    Path(file).unlink()
                assert len(list(dataset)) == 8
                later = Path(f"{path}.index").stat().st_mtime + 100
                os.utime(f"{path}.index", (later, later))
            found = model.evaluate(dataset, verbose=0)[1]
            np.testing.assert_allclose(found, ROWS.mean() + plus, rtol=1e-6)
            s.communicator.barrier()
    drop(s)


@takes_long()
@pytest.mark.parametrize("kind", ["tfrecord", "txt", "csv"])
@pytest.mark.parametrize("policy", [POLICY.AUTO, POLICY.FILE], ids=str)
def test_fewer_files_than_ranks(kind, policy):
    if (kind, policy) == ("csv", POLICY.FILE):
        return  # which TensorFlow refuses: it cannot divide CSV files
    with tempfile.TemporaryDirectory() as folder, distribute.MirroredStrategy(["CPU:0"]) as s:
        dataset = by(read(write(folder, 1, kind), kind), policy)
        assert rows_of(s, s.experimental_distribute_dataset(dataset)) == ROWS.tolist()
        model = double(s)
        history = model.fit(dataset.repeat(2), verbose=0, epochs=1)
        assert len(history.history["loss"]) == 1
        np.testing.assert_allclose(
            model.predict(dataset, verbose=0).ravel(), model(ROWS[:, None])[:, 0], rtol=1e-6
        )
    drop(s)


@takes_long()
def test_few_files_are_told_once():
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr(
            "mpistrat.tensorflow.data.sharding.warn_once", lambda *args: said.append(args)
        )
        with distribute.MirroredStrategy(["CPU:0"]) as s:
            s.experimental_distribute_dataset(read(write(folder, 1)))
            s.experimental_distribute_dataset(read(write(folder, 4)))
            ((_, _, text),) = said
            assert f"(1 for {s.communicator.size})" in text
    drop(s)


def leave_begun(path):
    """Begin to write a cache, and leave the iterator in a cycle of garbage, as Keras does."""
    left = [iter(tf.data.Dataset.range(20).cache(path))]
    next(left[0])
    left.append(left)
    Path(f"{path}_0.lockfile").unlink()  # or the next one is refused


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_an_iterator_of_before_does_not_remove_what_is_written_anew():
    with tempfile.TemporaryDirectory() as folder, distribute.MirroredStrategy(["CPU:0"]) as s:
        communicator, has_own = s.communicator, not s.is_chief
        shared = communicator.bcast_object(folder)
        path = f"{shared}/cache.rank_1" if has_own else f"{shared}/cache"
        program = tf.data.Dataset.range(20).cache(f"{shared}/cache")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cache_files, "_was_complete", {})
            gc.collect()
            gc.disable()
            try:
                leave_begun(path)
                assert len(list(tf.data.Dataset.range(20).cache(path))) == 20
                communicator.barrier()
                cache_files.drop_stale(program, communicator, "rank_1", has_own)
                if s.is_chief:
                    for end in ("index", "data-00000-of-00001"):
                        Path(f"{path}.{end}").unlink()
                communicator.barrier()
                cache_files.drop_stale(program, communicator, "rank_1", has_own)
                anew = iter(tf.data.Dataset.range(20).cache(path))
                next(anew)
                gc.collect()
                assert len(list(anew)) == 19
            finally:
                gc.enable()
        communicator.barrier()
    drop(s)
