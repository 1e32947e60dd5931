"""Data sets that each rank shuffles in an order of its own: their rows are no longer all there."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - it comes with TensorFlow

import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.tensorflow.data import seeds, shuffle_check  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
POLICY = tf.data.experimental.AutoShardPolicy


def shuffled(seed=None):
    return tf.data.Dataset.range(8).shuffle(8, seed=seed).batch(4)


def lines():
    """Return shuffled lines of files, one for each rank."""
    files = tf.data.Dataset.from_tensors(__file__).repeat(2)
    return files.interleave(tf.data.TextLineDataset).shuffle(8).batch(4)


def divided(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def warnings_of(patch, make):
    """Return what is said of a dataset that was made before the program's first strategy."""
    said = []
    patch.setattr(shuffle_check, "warn_once", lambda *args: said.append(args[-1]))
    patch.setattr(seeds, "_common", {})
    tf.random.set_seed(None)
    dataset = make()
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        s.experimental_distribute_dataset(dataset() if callable(dataset) else dataset)
    drop(s)
    return said


TOLD = {
    "plain": shuffled,
    "mapped": lambda: shuffled().map(abs).prefetch(1),
    "one of two": lambda: tf.data.Dataset.zip((shuffled(1), shuffled())),
    "by rows": lambda: divided(lines(), POLICY.DATA),
}
NOT_TOLD = {
    "after the strategy": lambda: shuffled,
    "with a seed": lambda: shuffled(1),
    "of files": lines,
    "not divided": lambda: divided(shuffled(), POLICY.OFF),
}


@takes_long()
@pytest.mark.parametrize("how", TOLD)
def test_an_order_without_a_seed_is_told(how):
    with pytest.MonkeyPatch.context() as patch:
        (text,) = warnings_of(patch, TOLD[how])
        assert "make the strategy first" in text


@takes_long()
@pytest.mark.parametrize("how", NOT_TOLD)
def test_other_orders_are_not(how):
    with pytest.MonkeyPatch.context() as patch:
        assert warnings_of(patch, NOT_TOLD[how]) == []


def rows_of(s, dataset):
    """Return all rows that the ranks get of a dataset, sorted."""
    steps = s.experimental_distribute_dataset(dataset)
    parts = [part for step in steps for part in s.experimental_local_results(step)]
    told = s.communicator.allgather_object(
        [row for part in parts for row in np.ravel(part).tolist()]
    )
    return sorted(row for rows in told for row in rows)


OUT_OF_STEP = {
    "shuffled": shuffled,
    "mapped": lambda: shuffled().map(abs).prefetch(1),
    "unknown length": lambda: shuffled().filter(lambda row: True),
    "by rows": lambda: divided(lines(), POLICY.DATA),
}


@takes_long()
@pytest.mark.parametrize("how", OUT_OF_STEP)
def test_a_rank_that_makes_one_more_dataset_than_the_others(how):
    tf.random.set_seed(None)
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        assert rows_of(s, shuffled()) == list(range(8))
        if s.communicator.rank == 1:
            shuffled()
        dataset = OUT_OF_STEP[how]()
        with refused(UsageError, r"(?s)seeds.*by rank: \[\[.*in the same order"):
            s.experimental_distribute_dataset(dataset)
        with refused(UsageError, "seeds"), s.scope():
            keras.Sequential([keras.layers.Dense(1)]).predict(shuffled(), verbose=0)
        assert rows_of(s, shuffled(3)) == list(range(8))
        endless = shuffled().repeat()
        s.experimental_distribute_dataset(endless)


def test_ranks_with_seeds_of_their_own():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        tf.random.set_seed(s.communicator.rank)
        dataset = shuffled()
        tf.random.set_seed(None)
        with refused(UsageError, "seeds"):
            s.experimental_distribute_dataset(dataset)


Dataset = tf.data.Dataset
LEGAL = {
    "endless, filtered": lambda seed: shuffled(seed).repeat().filter(lambda row: True),
    "endless, unbatched": lambda seed: (
        shuffled(seed).repeat().flat_map(Dataset.from_tensor_slices).batch(4)
    ),
    "chance beside rows": lambda seed: Dataset.zip(shuffled(3), Dataset.random(seed).batch(4)),
    "rows of chance": lambda seed: Dataset.random(seed).take(8).batch(4),
}
ILLEGAL = {
    "chosen": lambda seed: Dataset.sample_from_datasets([shuffled(1), shuffled(2)], seed=seed),
    "end of the endless": lambda seed: LEGAL["endless, filtered"](seed).take(2),
}


@takes_long()
@pytest.mark.parametrize("how", LEGAL | ILLEGAL)
def test_seeds_of_ranks(how):
    """They may differ if no row is lost by that."""
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        dataset = (LEGAL | ILLEGAL)[how](s.communicator.rank + 1)
        if how in LEGAL:
            next(iter(s.experimental_distribute_dataset(dataset)))
            return
        with refused(UsageError, "seeds"):
            s.experimental_distribute_dataset(dataset)


def pixel(number):
    return tf.io.encode_png(tf.fill([2, 2, 1], tf.cast(number, tf.uint8)))


def sound(number):
    return tf.audio.encode_wav(tf.fill([4, 1], number / 64), 8000)


KINDS = {  # how a file is written, and how files are read as numbers
    "image": (
        pixel,
        lambda folder, **how: keras.utils.image_dataset_from_directory(
            folder, image_size=(2, 2), color_mode="grayscale", **how
        ).map(lambda images: images[:, 0, 0, 0]),
    ),
    "text": (
        str,
        lambda folder, **how: keras.utils.text_dataset_from_directory(folder, **how).map(
            tf.strings.to_number
        ),
    ),
    "audio": (
        sound,
        lambda folder, **how: keras.utils.audio_dataset_from_directory(
            folder, output_sequence_length=4, **how
        ).map(lambda sounds: tf.round(64 * sounds[:, 0, 0])),
    ),
}
ENDINGS = {"image": "png", "text": "txt", "audio": "wav"}


@contextmanager
def folder_of(communicator, kind):
    """Give a folder with 10 files, each of a number, which is one of all ranks."""
    with tempfile.TemporaryDirectory() as own:
        folder = Path(communicator.bcast_object(own))
        if str(folder) == own:
            for number in range(10):
                tf.io.write_file(f"{own}/{number}.{ENDINGS[kind]}", KINDS[kind][0](number))
        communicator.barrier()
        yield folder
        communicator.barrier()


@takes_long()
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_folder(kind):
    """Keras draws what it shuffles them by from NumPy's generator, which each rank has alone."""
    with distribute.MirroredStrategy(["CPU:0"]) as s, folder_of(s.communicator, kind) as folder:

        def files(**how):
            return KINDS[kind][1](folder, labels=None, batch_size=4, **how)

        np.random.seed(s.communicator.rank)  # noqa: NPY002 - Keras draws from this one
        with refused(UsageError, "give shuffle, or what made the dataset, a seed"):
            s.experimental_distribute_dataset(files())
        for how in ({"seed": 5}, {"shuffle": False}):
            assert rows_of(s, files(**how)) == list(range(10))
        keras.utils.set_random_seed(7)
        assert rows_of(s, files()) == list(range(10))
    tf.random.set_seed(None)
