"""Data sets that each rank shuffles in an order of its own: their rows are no longer all there."""

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402
from mpistrat.tensorflow import orders, seeds  # noqa: E402
from mpistrat.testing.tensorflow import four_cpus  # noqa: E402
from mpistrat.testing.tensorflow_cases import drop  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
POLICY = tf.data.experimental.AutoShardPolicy


def shuffled(seed=None):
    return tf.data.Dataset.range(8).shuffle(8, seed=seed).batch(4)


def lines():
    """Return shuffled lines of a file."""
    files = tf.data.Dataset.from_tensors(__file__)
    return files.interleave(tf.data.TextLineDataset).shuffle(8).batch(4)


def divided(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def warnings_of(patch, make):
    """Return what is said of a dataset that was made before the program's first strategy."""
    said = []
    patch.setattr(orders, "warn_once", lambda *args: said.append(args[-1]))
    patch.setattr(seeds, "_common", {})
    tf.random.set_seed(None)
    dataset = make()
    with distribute.MirroredStrategy() as s:
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


@pytest.mark.parametrize("how", TOLD)
def test_an_order_without_a_seed_is_told(how):
    with pytest.MonkeyPatch.context() as patch:
        (text,) = warnings_of(patch, TOLD[how])
        assert "make the strategy first" in text


@pytest.mark.parametrize("how", NOT_TOLD)
def test_other_orders_are_not(how):
    with pytest.MonkeyPatch.context() as patch:
        assert warnings_of(patch, NOT_TOLD[how]) == []
