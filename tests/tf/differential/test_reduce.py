"""Reductions over replicas, as TensorFlow does them (B30 to B37, E6 to E10)."""

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import (  # noqa: E402
    ACCUMULATING,
    EVERYWHERE,
    SPREAD,
    by_id,
    raised,
    same,
)
from helpers.tf.process import four_cpus  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

OPS = ["SUM", "MEAN"]
RANKED = [case for case in SPREAD if case.ranks > 1]
ONE_DEVICE_EACH = [c for c in RANKED if c.kind == "Central" and c.replicas == c.ranks]


def block(i):
    return tf.reshape(tf.range(6.0), (2, 3)) + 4.0 * tf.cast(i, tf.float32)


@same()
def test_b30_ops_by_member_and_name(s):
    value = by_id(s, block)
    ops = ["SUM", "sum", "Sum", "MEAN", "mean", *tf.distribute.ReduceOp]
    return [s.reduce(op, value, axis=None) for op in ops]


@same()
def test_b30_other_ops_are_refused(s):
    value = by_id(s, block)
    return [raised(lambda op=op: s.reduce(op, value, axis=None)) for op in ["MAX", "", 3, None]]


@takes_long()
@same()
def test_b31_b32_axes(s):
    value = by_id(s, block)
    axes = [None, 1, -2, (0, 1), (-1,)]
    return [s.reduce(op, value, axis=axis) for op in OPS for axis in axes]


@takes_long()
@same()
def test_b32_axes_in_a_graph(s):
    @tf.function
    def step():
        value = by_id(s, block)
        return [s.reduce(op, value, axis=axis) for op in OPS for axis in [None, 0, (0, -1)]]

    return step()


@same()
def test_b32_bad_axes(s):
    value = by_id(s, block)
    return [raised(lambda axis=axis: s.reduce("SUM", value, axis=axis)) for axis in [2, -3, "x"]]


@same()
def test_b33_unequal_lengths(s):
    value = by_id(s, lambda i: tf.range(1.0, tf.cast(5 - i, tf.float32)))
    return [s.reduce(op, value, axis=0) for op in OPS]


@same()
def test_b33_unequal_lengths_in_a_graph(s):
    @tf.function
    def step():
        value = by_id(s, lambda i: tf.ones([5 - i, 2]))
        return [s.reduce(op, value, axis=axis) for op in OPS for axis in [0, (0, 1)]]

    return step()


@same()
def test_b33_a_replica_without_rows(s):
    value = by_id(s, lambda i: tf.ones([3 * (1 - tf.minimum(i, 1)), 2]))
    return [s.reduce(op, value, axis=0) for op in OPS]


@same(SPREAD)
def test_b34_unequal_shapes_have_no_elementwise_sum(s):
    value = by_id(s, lambda i: tf.ones([4 - i]))
    return [raised(lambda op=op: s.reduce(op, value, axis=None)) for op in OPS]


@same([case for case in EVERYWHERE if case not in RANKED])
def test_b35_a_bare_value_is_of_no_replica(s):
    value = tf.constant([1.0, 2.0])
    if s.num_replicas_in_sync == 1:
        total = s.reduce("SUM", value, axis=None)
    else:
        total = raised(lambda: s.reduce("SUM", value, axis=None))
    return [total, *(s.reduce(*how) for how in [("MEAN", value, None), ("SUM", value, 0)])]


@pytest.mark.parametrize("layout", RANKED, ids=str)
def test_b35_a_bare_value_is_the_ranks_own(layout):
    # As of MultiWorkerMirroredStrategy: it counts once for each rank.
    with layout.ours() as s:
        rank, ranks = s.communicator.rank, s.communicator.size
        value = tf.constant([1.0, 2.0]) + rank
        total = ranks + sum(range(ranks))
        assert s.reduce("SUM", value, axis=None).numpy().tolist() == [total, total + ranks]
        mean = s.reduce("MEAN", value, axis=None)
        assert mean.numpy().tolist() == [total / ranks, total / ranks + 1]


@same()
def test_b36_not_in_a_replica(s):
    return s.run(lambda: raised(lambda: s.reduce("SUM", 1.0, axis=None)).kinds[0])


@same()
def test_b37_where_results_are(s):
    value = by_id(s, block)
    return [s.reduce(op, value, axis=None).device.split("device:")[-1] for op in OPS]


@same()
def test_means_of_integers(s):
    found = []
    for dtype in [tf.int32, tf.int64, tf.uint8]:
        value = by_id(s, lambda i, dtype=dtype: tf.cast(tf.range(3) + i, dtype))
        found += [raised(lambda v=value: s.reduce("MEAN", v, axis=None))]
        found += [raised(lambda v=value: s.reduce("MEAN", v, axis=0))]
        found += [s.reduce("SUM", value, axis=axis) for axis in [None, 0]]
    return found


# TensorFlow's takes a central variable for the value of all replicas.
@same([case for case in EVERYWHERE if case.kind != "Central"])
def test_variables_in_a_replica(s):
    with s.scope():
        variable = tf.Variable([1.0, 2.0])

    def step():
        with tf.GradientTape() as tape:
            context = tf.distribute.get_replica_context()
            first, (second,) = context.all_reduce("SUM", [variable, (variable,)])
        return first, second, tape.gradient(first, variable)

    return [s.run(step), s.run(tf.function(step))]


@pytest.mark.parametrize("layout", ONE_DEVICE_EACH, ids=str)
def test_one_value_for_all_replicas_of_central_storage(layout):
    # TensorFlow takes a variable of central storage, or a plain tensor, for the value of all
    # replicas: its MEAN is the value itself, of integers, too, and its SUM a ValueError. Here each
    # rank has one, which counts as where `run` returns it, and the MEAN of integers is float64.
    with layout.ours() as s:
        with s.scope():
            v = tf.Variable(7, aggregation=tf.VariableAggregation.MEAN)
        for value in (v, v.read_value(), s.run(lambda: v)):
            mean, total = (s.reduce(op, value, axis=None) for op in ("MEAN", "SUM"))
            assert (mean.dtype, mean.numpy()) == (tf.float64, 7.0)
            assert (total.dtype, total.numpy()) == (tf.int32, 7 * s.num_replicas_in_sync)
        # As under TensorFlow's, where the replicas' values are tensors of their own.
        for assign in (v.assign, v.assign_add, v.assign_sub):
            with pytest.raises(ValueError, match="dtype int32 for Tensor with dtype float64"):
                s.run(lambda assign=assign: assign(tf.constant(1)))


@same([case for case in EVERYWHERE if case.kind != "Central"])  # TensorFlow's refuses them
def test_nests(s):
    def fn(i):
        x = tf.cast(i, tf.float32)
        return {"a": [x, (x + 1.0, tf.stack([x, x]))], "b": x * 2.0}

    value = by_id(s, fn)
    return [s.reduce(op, value, axis=None) for op in OPS]


@same()
def test_scalars_have_no_axis(s):
    return raised(lambda: s.reduce("SUM", by_id(s), axis=0))


@same()
def test_e06_to_e09(s):
    ids = by_id(s)
    per_replica = s.experimental_distribute_values_from_function(
        lambda context: tf.range(4) + 4 * context.replica_id_in_sync_group
    )
    return [
        s.reduce("SUM", ids, axis=None),
        s.reduce("sum", per_replica, axis=None),
        s.reduce("sum", per_replica, axis=0),
        s.reduce("mean", per_replica, axis=0),
    ]


@same()
def test_v1_default_of_axis(s):
    # Older versions do not need it; ours follow them, and take it as they do.
    value = by_id(s, block)
    if hasattr(s, "experimental_run_v2"):
        return s.reduce("SUM", value)
    return s.reduce("SUM", value, axis=None)


@takes_long()
@same(ACCUMULATING)
def test_accumulation_functions(s):
    value = by_id(s, block)
    with s.scope():
        variable = tf.Variable(tf.zeros([2, 3]), aggregation=tf.VariableAggregation.SUM)

    def fn():
        context = tf.distribute.get_replica_context()
        mine = block(context.replica_id_in_sync_group)
        variable.assign_add(mine)
        slices = tf.IndexedSlices(mine[:1], tf.constant([1]), tf.constant([2, 3]))
        dense, sparse = context.all_reduce("SUM", [mine * 2.0, slices])
        mean = context.all_reduce("MEAN", mine)
        total = context.all_reduce("SUM", context.replica_id_in_sync_group + 1)
        return dense, tf.convert_to_tensor(sparse), mean, total

    eager, graph = s.run(fn), tf.function(lambda: s.run(fn))()
    totals = [s.reduce(op, value, axis=axis) for op in OPS for axis in [None, 0]]
    return [eager, graph, totals, variable.numpy()]


@same()
def test_batch_reduce_to_where_the_replicas_are(s):
    numbers = by_id(s, lambda i: tf.cast(i, tf.float32) + 1.0)
    rows = by_id(s, lambda i: tf.cast(i, tf.float32) * tf.ones([2, 3]))
    with s.scope():
        variable = tf.Variable(1.0)
    pairs = {
        "replicas": [(numbers, numbers), (rows, rows)],
        "variable": [(numbers, variable), (rows, variable)],
        "device": [(numbers, "CPU:0"), (rows, "CPU:0")],
    }

    def reduced(op):
        return {where: s.extended.batch_reduce_to(op, some) for where, some in pairs.items()}

    return [reduced(op) for op in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN)]
