"""Datasets, and values that are elsewhere, where one rank drives TensorFlow's strategy."""

import _thread
import queue

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402
from helpers.pretend.tpus import PretendResolver, initialized  # noqa: E402
from helpers.tf.cases import drop, mirrored_cpus  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat import errors  # noqa: E402 - TensorFlow may be missing
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402
from mpistrat.tensorflow.wrapped_strategy.one_driver import link  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

RANKS = pytest.mark.mpi(ranks=[1, 2, 3] if with_all() else [2], timeout_s=60)
SOME = pytest.mark.mpi(ranks=2, timeout_s=60)
STEP = "inside of a tf.function, where rank 0 drives"


def backed():
    return TFBackedStrategy(mirrored_cpus, driver=0)


def rows(count=8):
    data = {"x": tf.range(float(count)), "y": tf.ones([count, 2])}
    return tf.data.Dataset.from_tensor_slices((data, tf.range(count))).batch(4)


@takes_long()
@RANKS
def test_batches_have_their_structure_on_all_ranks():
    with backed() as s:
        dataset = s.experimental_distribute_dataset(rows())
        assert isinstance(dataset, tf.distribute.DistributedDataset)
        assert int(dataset.cardinality) == 2
        spec = dataset.element_spec
        assert set(spec[0]) == {"x", "y"}
        sums = []
        for features, ids in dataset:
            x = s.run(lambda features: features["x"], args=(features,))
            both = s.run(lambda x, i: (tf.reduce_sum(x), tf.size(i)), args=(x, ids))
            sums.append((float(s.reduce("SUM", both[0], axis=None)),))
            found = s.reduce("SUM", (both[0], both[1]), axis=None)
            sums[-1] += (float(found[0]), int(found[1]), s.gather(features["x"], 0).numpy()[-1])
        assert sums == [(6.0, 6.0, 4, 3.0), (22.0, 22.0, 4, 7.0)]


@RANKS
def test_iterators_end_as_tensorflows():
    with backed() as s:
        batches = iter(s.experimental_distribute_dataset(rows()))
        assert isinstance(batches, tf.distribute.DistributedIterator)
        assert set(batches.element_spec[0]) == {"x", "y"}
        _, ids = batches.get_next()
        assert s.gather(ids, axis=0).numpy().tolist() == [0, 1, 2, 3]
        optional = batches.get_next_as_optional()
        assert optional.has_value()
        _, ids = optional.get_value()
        assert s.gather(ids, axis=0).numpy().tolist() == [4, 5, 6, 7]
        assert not batches.get_next_as_optional().has_value()
        with pytest.raises(tf.errors.OutOfRangeError):
            batches.get_next()
        with pytest.raises(StopIteration):
            next(batches)


def loops(s, traces):
    """Return three loops over batches, each a function that is traced once."""

    def added(total, batch):
        return total + s.reduce("SUM", s.run(lambda x: x, args=(batch,)), axis=0)

    @tf.function
    def over_dataset(dataset):
        traces.append("dataset")
        total = tf.constant(0, tf.int64)
        for batch in dataset:
            total = added(total, batch)
        return total

    @tf.function
    def over_iterator(batches):
        traces.append("iterator")
        total = tf.constant(0, tf.int64)
        for batch in batches:
            total = added(total, batch)
        return total

    @tf.function
    def while_any(batches):
        total = tf.constant(0, tf.int64)
        optional = batches.get_next_as_optional()
        while optional.has_value():
            total = added(total, optional.get_value())
            optional = batches.get_next_as_optional()
        return total

    return over_dataset, over_iterator, while_any


@takes_long()
@RANKS
def test_loops_in_a_function_are_the_driving_ranks():
    with backed() as s:
        dataset = s.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4))
        traces = []
        over_dataset, over_iterator, while_any = loops(s, traces)
        for _ in range(2):
            assert s.on_driver(over_dataset, dataset).numpy() == 28
            assert s.on_driver(lambda: over_dataset(dataset)).numpy() == 28  # one that is ours
            assert s.on_driver(over_iterator, iter(dataset)).numpy() == 28
            assert s.on_driver(while_any, iter(dataset)).numpy() == 28
            assert s.on_driver(over_dataset, dataset=dataset).numpy() == 28
            assert s.on_driver(over_iterator, batches=iter(dataset)).numpy() == 28
        assert traces == (["dataset", "dataset", "iterator"] if s.is_driver else [])
        for call in (over_dataset, lambda one: over_iterator(iter(one))):
            with pytest.raises(UsageError, match=STEP):  # also on the rank that has traced them
                call(dataset)


@takes_long()
@SOME
def test_replicas_get_tensorflows_iterators():
    with backed() as s:
        batches = iter(s.experimental_distribute_dataset(rows()))
        given = []
        call = (lambda *one, **named: given.extend([*one, *named.values()]), (batches,))
        s.run(*call, {"batches": batches})
        s.on_driver(s.run, *call, kwargs={"batches": batches})
        assert given == [batches.own] * (8 if s.is_driver else 0)


@SOME
def test_an_iterator_that_cannot_be_made_is_an_error_on_all_ranks():
    class Broken:
        def __iter__(self):
            raise OSError("no iterator")

    with backed() as s:
        dataset = s.experimental_distribute_dataset(rows())
        if s.is_driver:
            dataset.own = Broken()
        with pytest.raises(OSError, match="no iterator"):
            iter(dataset)
        assert s.on_driver(lambda: 7) == 7


@SOME
def test_what_is_not_here_is_refused():
    with backed() as s:
        value = s.run(lambda: (tf.constant(1.0), {"x": tf.constant([2.0])}))
        first, rest = value[0], value[1]
        assert float(s.reduce("SUM", rest["x"], axis=0)) == 4.0
        assert float(s.reduce("MEAN", first, axis=None)) == 1.0
        if s.is_driver:
            return
        uses = [
            lambda: first < 1,
            lambda: -first,
            lambda: first == 1,
            lambda: 2.0**first,
            lambda: tf.ones([2]) @ first,
            lambda: first.shape,
            lambda: first.numpy,
            lambda: tf.reduce_mean(first),
            lambda: tf.add(1.0, first),
            lambda: np.asarray(first),
            lambda: f"{first:.2f}",
            lambda: [*value],
            lambda: len(value),
            lambda: tf.function(lambda x: x + 1)(first),
        ]
        for use in uses:
            with pytest.raises(UsageError, match="is on rank 0 only, which drives"):
                use()
        with pytest.raises(UsageError, match=r"by value.0., value.1. or .*instead of unpacking"):
            first, rest = value
        with pytest.raises(UsageError, match="instead of unpacking it or looping"):
            next(iter(value))
        assert not hasattr(first, "dtype")
        (again, _), _ = tf.function(lambda one: (one, one))((first, rest))
        assert s.experimental_local_results((again, rest)) == ()


@takes_long()
@SOME
def test_a_replica_cannot_call_all_ranks():
    s = backed()
    batches = iter(s.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4)))
    if s.is_driver:
        with pytest.raises(UsageError, match=r"next batch inside of what strategy.run calls"):
            s.run(lambda: next(batches))
    else:
        with pytest.raises(errors.PeerLostError, match=r"inside of what strategy.run calls"):
            next(batches)
    drop(s)


@SOME
def test_annotations_leave_what_is_elsewhere_as_it_is():
    with initialized(), mpistrat.TPUStrategy(PretendResolver(), driver=0) as s:
        if not s.is_driver:
            value = s.run(lambda: tf.constant(1.0))
            assert s.experimental_assign_to_logical_device(value, 0) is value
            assert s.experimental_split_to_logical_devices(value, [1]) is value
            assert s.experimental_replicate_to_logical_devices(value) is value


@takes_long()
@SOME
def test_links_that_a_thread_of_tensorflows_sees_do_not_change_while_it_looks():
    with backed() as s:
        one, found = link.DriverLink(s.communicator, 0), queue.SimpleQueue()
        with one.alone():
            # Not one of Python's, which would have a context of its own.
            _thread.start_new_thread(lambda: found.put(reversed(link._alone())), ())
            seen = found.get(timeout=10)
        assert list(seen) == [id(one)]
