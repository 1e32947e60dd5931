"""Digests of a dataset's elements: taken while they are read, without changing anything else."""

import os

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf = pytest.importorskip("tensorflow")
digest_op = pytest.importorskip("mpistrat.tensorflow.graph.digest_op")
private_data = pytest.importorskip("mpistrat.tensorflow.private.data")

pytestmark = pytest.mark.deadline(200)
COUNT, BATCH = 20, 6
X = np.random.default_rng(0).normal(size=(COUNT, 5)).astype("float32")
Dataset = tf.data.Dataset


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    if not digest_op.is_available():
        pytest.skip("the operation cannot be compiled here; the warning says why")


def batches():
    """Return a dataset of batches of dictionaries, and the last batch is shorter."""
    rows = {"b": X, "a": np.arange(COUNT), "text": np.arange(COUNT).astype(bytes)}
    return Dataset.from_tensor_slices((rows, np.ones(COUNT))).batch(BATCH)


def not_ahead(dataset):
    """Return the dataset whose iterators read nothing before they are asked for it."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def with_none():
    return batches().map(lambda rows, ones: (rows["a"], None, ones))


def composites():
    ragged = tf.RaggedTensor.from_tensor(X)
    sparse = tf.sparse.from_dense(X)
    return Dataset.from_tensor_slices((X, ragged, sparse)).batch(BATCH)


def ops_of(dataset):
    return [node.op for node in private_data.graph_of(dataset).node]


def marks_of(digests):
    """Read a pass, and return what was noted of it."""
    count = sum(1 for _ in digests.dataset)
    number, noted = digests.newest()
    assert noted == count
    return digests.read(number, 0, count)


@pytest.mark.parametrize("make", [batches, with_none])
def test_digests_are_those_that_a_filter_takes(make, monkeypatch):
    native = digest_op.Digests(make())
    found = marks_of(native)
    assert "FilterDataset" not in ops_of(native.dataset)
    monkeypatch.setattr(digest_op, "_is_native", lambda: False)
    filtered = digest_op.Digests(make())
    assert "FilterDataset" in ops_of(filtered.dataset)
    for mine, expected in zip(found, marks_of(filtered), strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert len(set(found.digests[:, 0].tolist())) == 4  # all batches differ in their first rows


def test_composites_are_noted_by_their_parts():
    digests = digest_op.Digests(composites())
    assert "FilterDataset" in ops_of(digests.dataset)
    found = marks_of(digests)
    assert digests.components == found.sums.shape[1] == 6  # rows; values, splits; indices, ...
    values = found.sums[:, [0, 1, 4]]
    assert (values != 0).all()
    assert len(np.unique(values[:, 1])) == 4


@pytest.mark.parametrize("make", [batches, with_none, composites])
def test_nothing_else_is_changed(make):
    options = tf.data.Options()
    options.deterministic = False
    plain = make().with_options(options)
    noted = digest_op.Digests(plain).dataset
    assert noted.element_spec == plain.element_spec
    assert noted.options() == plain.options()
    assert noted.cardinality() == 4
    assert private_data.batch_size_of(make()) == private_data.batch_size_of(noted.take(9))
    for mine, expected in zip(noted, plain, strict=True):
        tf.nest.map_structure(
            np.testing.assert_array_equal,
            *(tf.nest.flatten(one, expand_composites=True) for one in (mine, expected)),
        )


def test_the_size_of_a_batch_is_found_through_it():
    plain = batches()
    assert private_data.batch_size_of(plain) == BATCH
    assert private_data.batch_size_of(digest_op.Digests(plain).dataset) == BATCH
    assert digest_op._is_native()


@pytest.mark.parametrize(
    "cardinality", [tf.data.INFINITE_CARDINALITY, tf.data.UNKNOWN_CARDINALITY]
)
def test_lengths_that_are_not_known(cardinality):
    endless = cardinality == tf.data.INFINITE_CARDINALITY
    plain = batches().repeat() if endless else batches().filter(lambda rows, ones: True)
    digests = digest_op.Digests(plain)
    assert digests.dataset.cardinality() == cardinality
    for _ in digests.dataset.take(3):
        pass
    assert digests.newest().batches == 3


def test_each_iterator_is_a_pass():
    digests = digest_op.Digests(not_ahead(batches()))
    assert digests.newest().batches == 0
    marks = marks_of(digests)
    first = digests.newest()
    older = iter(digests.dataset)
    next(older)
    newer = iter(digests.dataset)
    next(newer)
    assert digests.newest().number == first.number + 2
    next(older)  # nobody asks for what an older pass has read
    assert digests.newest().batches == 1
    next(newer)
    number, count = digests.newest()
    assert count == 2
    np.testing.assert_array_equal(digests.read(number, 0, 2).digests, marks.digests[:2])
    assert not digests.read(first.number, 0, 1).digests.any()


def test_an_iterator_comes_back_from_a_checkpoint(tmp_path):
    digests = digest_op.Digests(not_ahead(batches()))
    marks = marks_of(digests)
    iterator = iter(digests.dataset)
    next(iterator)
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    path = checkpoint.save(str(tmp_path / "at"))
    expected = next(iterator)
    checkpoint.restore(path)
    np.testing.assert_array_equal(next(iterator)[0]["b"], expected[0]["b"])
    number, count = digests.newest()
    assert count == 1  # a new pass, that begins in the middle
    np.testing.assert_array_equal(digests.read(number, 0, 1).digests, marks.digests[1:2])


def test_a_loop_in_a_function():
    digests = digest_op.Digests(batches())

    @tf.function
    def total(dataset):
        found = tf.constant(0, tf.int64)
        for rows, _ in dataset:
            found += tf.reduce_sum(rows["a"])
        return found

    for _ in range(2):
        assert total(digests.dataset) == sum(range(COUNT))
        assert digests.newest().batches == 4


def test_a_graph_of_it_notes_for_the_same_digests():
    digests = digest_op.Digests(batches())
    graph = private_data.graph_of(digests.dataset)
    assert sum(1 for _ in private_data.dataset_of(graph, digests.dataset)) == 4
    assert digests.newest().batches == 4


def test_it_may_outlive_its_digests():
    dataset = digest_op.Digests(batches()).dataset
    assert sum(1 for _ in dataset) == 4


def long_rows(change):
    """Return three batches of equal rows of 40 kB, some of whose last batch are changed."""
    rows = np.tile(np.random.default_rng(0).normal(size=10_001), (12, 1))
    change(rows)
    return Dataset.from_tensor_slices(rows.astype("float32")).batch(4)


def strings(change):
    rows = np.array(["equal" * 5000] * 12, object)
    change(rows)
    return Dataset.from_tensor_slices(rows).batch(4)


@pytest.mark.parametrize("make", [long_rows, strings])
def test_rows_that_differ_are_told_from_equal_ones(make):
    def keep(rows):
        pass

    def change(rows):
        rows[9] = rows[9] * 2 if rows.dtype == float else "other"

    equal, varied = (digest_op.Digests(make(one)) for one in (keep, change))
    assert marks_of(equal).is_varied.tolist() == [0]
    assert marks_of(varied).is_varied.tolist() == [1]


def test_rows_of_other_lengths_differ():
    rows = Dataset.range(1, 4).map(lambda count: tf.ones([2, count]))
    assert marks_of(digest_op.Digests(rows)).is_varied.tolist() == [1]
