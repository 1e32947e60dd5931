"""Gathers over replicas, as TensorFlow does them (B40 to B47, E23)."""

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import (  # noqa: E402
    EVERYWHERE,
    SPREAD,
    by_id,
    raised,
    same,
)
from helpers.tf.process import four_cpus  # noqa: E402 - TensorFlow may be missing

four_cpus()

RANKED = [case for case in SPREAD if case.ranks > 1]


def block(i):
    return tf.reshape(tf.range(6.0), (1, 2, 3)) + 10.0 * tf.cast(i, tf.float32)


def here():
    return tf.distribute.get_replica_context()


@same()
def test_b40_b41_e23_along_each_axis(s):
    value = by_id(s, block)
    return [s.gather(value, axis=axis) for axis in range(3)]


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_b41_other_axes(layout):
    # TensorFlow raises what it happens to stumble over: ValueError, InvalidArgumentError.
    with layout.ours() as s:
        for axis in [-1, 1, 5]:
            with pytest.raises(ValueError, match=rf"axis={axis} of a tensor of shape \(2,\)"):
                s.gather(by_id(s, lambda i: tf.ones([2])), axis=axis)
        assert s.gather(by_id(s, block), axis=0).shape == (s.num_replicas_in_sync, 2, 3)


@same()
def test_b42_lengths_may_differ_along_the_axis(s):
    rows = by_id(s, lambda i: tf.ones([i + 1, 2]) * tf.cast(i, tf.float32))
    columns = by_id(s, lambda i: tf.ones([2, 4 - i]) * tf.cast(i, tf.float32))
    none = by_id(s, lambda i: tf.ones([i, 2]))
    return [s.gather(rows, axis=0), s.gather(columns, axis=1), s.gather(none, axis=0)]


@same()
def test_b42_b47_unequal_lengths_in_a_graph(s):
    @tf.function
    def step():
        rows = by_id(s, lambda i: tf.ones([i + 1, 2]) * tf.cast(i, tf.float32))
        return s.gather(rows, axis=0), s.gather(by_id(s, block), axis=2)

    return step()


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_b42_nothing_else_may_differ(layout):
    # TensorFlow raises InvalidArgumentError, and its later collectives fail too: ours goes on.
    with layout.ours() as s:
        for value in [lambda i: tf.ones([2, i + 1]), lambda i: tf.ones([2] * (1 + int(i)))]:
            with pytest.raises(tf.errors.InvalidArgumentError):
                s.gather(by_id(s, value), axis=0)
        assert s.gather(by_id(s, block), axis=0).shape == (s.num_replicas_in_sync, 2, 3)


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_b43_b44_scalars_and_sparse_slices_are_refused(layout):
    # TensorFlow's error depends on the strategy: ValueError, InvalidArgumentError, none.
    with layout.ours() as s:
        with pytest.raises(ValueError, match="at least one dimension"):
            s.gather(by_id(s), axis=0)
        with pytest.raises(ValueError, match="at least one dimension"):
            s.run(lambda: here().all_gather(tf.constant(1.0), axis=0))
        slices = by_id(s, lambda i: tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1])))
        with pytest.raises(NotImplementedError, match="IndexedSlices"):
            s.gather(slices, axis=0)


@same()
def test_b44_sparse_slices_are_refused_in_a_replica(s):
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]))
    return raised(lambda: s.run(lambda: here().all_gather(slices, axis=0)))


@same()
def test_b45_not_in_a_replica(s):
    return s.run(lambda: raised(lambda: s.gather(tf.ones([1]), axis=0)).kinds[0])


@same()
def test_b45_all_gather_in_a_replica(s):
    return s.run(
        lambda: [here().all_gather(block(here().replica_id_in_sync_group), a) for a in range(3)]
    )


@same()
def test_b45_all_gather_of_a_nest_of_unequal_lengths(s):
    def fn():
        i = here().replica_id_in_sync_group
        return here().all_gather({"a": tf.ones([i + 1]), "b": [tf.ones([1, i + 2])[0]]}, axis=0)

    return s.run(fn)


@same()
def test_b45_all_gather_in_a_graph(s):
    @tf.function
    def step():
        def fn():
            i = here().replica_id_in_sync_group
            return here().all_gather(tf.ones([i + 1, 2]) * tf.cast(i, tf.float32), axis=0)

        return s.run(fn)

    return step()


@same([case for case in EVERYWHERE if case not in RANKED])
def test_b46_a_bare_value_is_of_no_replica(s):
    return s.gather(tf.constant([[1.0], [2.0]]), axis=0)


@pytest.mark.parametrize("layout", RANKED, ids=str)
def test_b46_a_bare_value_is_the_ranks_own(layout):
    # As of MultiWorkerMirroredStrategy.
    with layout.ours() as s:
        mine = tf.constant([[float(s.communicator.rank)]])
        assert s.gather(mine, axis=0).numpy().tolist() == [[0.0], [1.0]]
