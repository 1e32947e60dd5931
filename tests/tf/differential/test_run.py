"""Functions on replicas, and their values, as TensorFlow does it (B20 to B26, B50, B51)."""

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import (  # noqa: E402
    by_id,
    of_tensorflow,
    raised,
    same,
    steady,
)
from helpers.tf.process import four_cpus  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()


def here():
    return tf.distribute.get_replica_context()


def ids(s, value=lambda i: i):
    """Return Python or NumPy values for the replicas, as they are."""
    return s.experimental_distribute_values_from_function(
        lambda context: value(context.replica_id_in_sync_group)
    )


@same()
def test_b20_each_replica_gets_its_component(s):
    values = ids(s, lambda i: tf.constant(10.0 * i))

    def fn(a, b, *rest, key, nest):
        return {"a": a + 1.0, "b": b, "rest": rest, "key": key * 2.0, "nest": nest}

    nest = {"x": values, "y": [values, 3, "text", None]}
    return s.run(fn, args=(values, 5.0, values, "w"), kwargs={"key": values, "nest": nest})


@same()
def test_b20_composite_tensors(s):
    ragged = ids(s, lambda i: tf.ragged.constant([[i], [i, i + 1]]))
    sparse = ids(s, lambda i: tf.sparse.from_dense([0, i + 1]))
    found = s.run(lambda r, p: (r.flat_values + 1, tf.sparse.to_dense(p)), args=(ragged, sparse))
    return [found, ragged, sparse]


@same()
def test_b20_results_may_be_composite(s):
    return by_id(s, lambda i: (tf.ragged.range(tf.stack([i, 2])), tf.sparse.from_dense([i, 1])))


@same()
def test_b21_replica_context(s):
    def fn():
        context = here()
        return [
            context.replica_id_in_sync_group,
            context.num_replicas_in_sync,
            context.strategy is of_tensorflow(s),
            tf.distribute.in_cross_replica_context(),
            context.all_reduce("SUM", tf.ones([2])),
            context.all_reduce(tf.distribute.ReduceOp.MEAN, context.replica_id_in_sync_group),
        ]

    return s.run(fn)


@same()
def test_b21_devices(s):
    return s.run(lambda: tf.identity(1.0).device.split("/")[-1].split(":")[1])


@same()
def test_b21_merge_call(s):
    def merge(strategy, value, factor):
        return strategy.reduce("SUM", value, axis=None) * factor

    return s.run(lambda: here().merge_call(merge, args=(by_context(), 2.0)))


def by_context():
    return tf.cast(here().replica_id_in_sync_group, tf.float32) + 1.0


@same()
def test_b22_calls(s):
    calls = []

    def fn():
        calls.append(1)
        return tf.constant(1.0)

    step = tf.function(lambda: s.run(fn))
    eager = [s.run(fn) for _ in range(3)]
    count = len(calls) / (3 * len(s.experimental_local_results(eager[0])))
    del calls[:]
    graph = [step() for _ in range(3)]
    return [count, len(calls) / len(s.experimental_local_results(graph[0])), eager, graph]


@same()
def test_b23_structure_of_results(s):
    shared = object()
    results = by_id(s, lambda i: (None, 7, "text", {"a": i + 1, "b": [tf.ones([2]), 2.5]}))
    same_object = s.run(lambda: shared)
    return [results, same_object is shared]


@same()
def test_b23_python_values_that_differ(s):
    return by_id(s, lambda i: [f"replica {int(i)}", int(i), [int(i)], float(i)])


@same()
def test_b23_mirrored_where_in_sync(s):
    with s.scope():
        variable = tf.Variable(2.0)
    return [s.run(lambda: variable), s.run(lambda: variable + 1.0), s.run(variable.read_value)]


@same()
def test_b25_options(s):
    options = tf.distribute.RunOptions(experimental_enable_dynamic_batch_size=False)
    return s.run(lambda x: x + 1.0, args=(tf.constant(1.0),), options=options)


@takes_long()
@same()
def test_b26_experimental_run(s):
    iterator = s.make_dataset_iterator(steady(tf.data.Dataset.range(8).batch(4)))
    iterator.initialize()
    total = s.experimental_run(tf.reduce_sum, iterator)
    return [s.reduce("SUM", total, axis=None), s.experimental_run(lambda: 3)]


@same()
def test_python_numbers_in_a_graph(s):
    @tf.function
    def step():
        return s.run(lambda: here().all_reduce("SUM", 1.0))

    return step()


@same()
def test_e11_e12_e13(s):
    with s.scope():
        constant = tf.constant(3.0)
    return [
        s.run(lambda x: x * 2.0, args=(constant,)),
        s.run(lambda x: x * 2, args=(s.num_replicas_in_sync,)),
        s.run(lambda: here().all_reduce("sum", here().replica_id_in_sync_group)),
    ]


@same()
def test_b50_values_from_a_function(s):
    array = [3.0, 2.0, 1.0, 0.0]
    return [
        ids(s, lambda i: tf.constant(1.0)),
        ids(s, lambda i: array[i]),
        ids(s, lambda i: [i, {"a": i * 2}]),
        s.experimental_distribute_values_from_function(lambda c: c.num_replicas_in_sync),
    ]


@same()
def test_b51_local_results(s):
    value = by_id(s)
    take = s.experimental_local_results
    with s.scope():
        variable = tf.Variable(1.0)
    local = len(take(value))
    return [
        take(tf.constant(1.0)),
        take(None),
        take(3),
        take([1, 2])[0],
        len(take(variable)) in (local, 1),
        isinstance(take(value), tuple),
        isinstance(take({"a": value})[0], dict),
    ]


@same()
def test_results_of_replicas_that_raise(s):
    def fn():
        raise KeyError("from the replica")

    return [raised(lambda: s.run(fn)), raised(lambda: s.run(3)), by_id(s)]


@same()
def test_runs_do_not_nest(s):
    return [s.run(lambda: raised(lambda: s.run(lambda: 1)).kinds[0]), raised(lambda: s.run(None))]


@takes_long()
@same()
def test_autograph(s):
    @tf.function
    def step(n):
        def fn(n):
            total = tf.constant(0)
            for i in tf.range(n):
                if i % 2 == 0:
                    total += i
            return total + here().replica_id_in_sync_group

        return s.run(fn, args=(n,))

    return [step(tf.constant(5)), step(tf.constant(9))]
