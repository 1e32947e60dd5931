"""Central storage of arrays does what TensorFlow's does on two logical CPUs: one snippet, both."""

from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.layouts import Layout  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

LAYOUTS = [Layout(1, 2), Layout(2, 1)]

THEIRS = SimpleNamespace(
    Variable=lambda value, **how: tf.Variable(np.asarray(value, np.float32), **how),
    Aggregation=tf.VariableAggregation,
    replica=tf.distribute.get_replica_context,
    array=lambda value: tf.constant(value, tf.float32),
    rows=lambda: tf.data.Dataset.range(5).batch(2),
)
OURS = SimpleNamespace(
    Variable=lambda value, **how: mpistrat.Variable(np.asarray(value, np.float32), **how),
    Aggregation=mpistrat.VariableAggregation,
    replica=mpistrat.get_replica_context,
    array=lambda value: np.asarray(value, np.float32),
    rows=lambda: mpistrat.data.Dataset.from_tensor_slices(np.arange(5)).batch(2),
)


class Each:
    """Values by replica."""

    def __init__(self, value):
        self.value = value


def plain(strategy, value):
    """Return what is compared: numbers, of all replicas' values all of them."""
    if not isinstance(value, Each):
        return np.asarray(value).tolist()
    mine = [np.asarray(one).tolist() for one in strategy.experimental_local_results(value.value)]
    if isinstance(strategy, tf.distribute.Strategy):
        return mine
    everyone = strategy.extended.communicator.allgather_object(mine)
    return [one for ranks in everyone for one in ranks]


def raised(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one is compared
        return next(k.__name__ for k in (ValueError, RuntimeError) if isinstance(error, k))
    return "nothing"


def mine(d):
    """Return an array that differs by replica."""
    number = d.replica().replica_id_in_sync_group
    return d.array([1.0, 4.0]) * d.array(float(number + 1))


def made(s, d, value=(8.0, 16.0), **how):
    with s.scope():
        return d.Variable(value, **how)


def assign(s, v, method, value):
    """Assign in each replica."""

    def step():
        getattr(v, method)(value())

    s.run(step)


# ---------------------------------------------------------------------------------- the snippets


def assigned_in_replicas(s, d):
    found = []
    for name in ("SUM", "MEAN", "ONLY_FIRST_REPLICA"):
        v = made(s, d, aggregation=d.Aggregation[name])
        for method in ("assign_add", "assign_sub", "assign"):
            assign(s, v, method, lambda: mine(d))
            found.append(v.numpy())
            assign(s, v, method, lambda: mine(d) * mine(d))
            found += [v.numpy(), Each(s.run(lambda v=v: v + mine(d)))]
    return found


def assigned_across_replicas(s, d):
    v = made(s, d)
    found = []
    with s.scope():
        for method in ("assign", "assign_add", "assign_sub"):
            getattr(v, method)(d.array([2.0, 3.0]))
            found.append(v.numpy())
    v.assign_add(d.array([1.0, 1.0]))
    return [*found, v.numpy(), v * 2.0 + 1.0, v[1]]


def refused_without_a_rule(s, d):
    v = made(s, d)
    return [raised(lambda: assign(s, v, "assign", lambda: mine(d))), v.numpy()]


def updated(s, d):
    v, w = made(s, d), made(s, d, (1.0, 2.0))
    values = s.experimental_distribute_values_from_function(
        lambda context: d.array(float(context.replica_id_in_sync_group + 3))
    )
    found = []
    with s.scope():
        for group in (True, False):
            result = s.extended.update(
                v, lambda one, x, by: one.assign_add(x * by), (values,), {"by": w}, group=group
            )
            found += [v.numpy(), result if group else result[0]]
        reduced = s.extended.reduce_to("SUM", values, v)
        s.extended.update(v, lambda one, x: one.assign(one * x), (reduced,))
    return [*found, v.numpy(), s.extended.read_var(v)]


def one_variable_a_node(s, d):
    v = made(s, d, name="w")
    (only,) = s.experimental_local_results(v)
    with s.scope():
        found = [only.numpy(), s.extended.variable_created_in_scope(v)]
    return [*found, len(s.extended.parameter_devices), s.num_replicas_in_sync]


def made_in_replicas(s, d):
    variables = []

    def first_step():
        v = d.Variable([1.0, 2.0], aggregation=d.Aggregation.SUM)
        variables.append(v)
        v.assign_add(mine(d))
        return v + mine(d)

    return [Each(s.run(first_step)), variables[0].numpy()]


def values_of_replicas(s, d):
    value = s.run(lambda: mine(d))
    found = [s.reduce(op, value, axis=axis) for op in ("SUM", "MEAN") for axis in (None, 0)]
    total = s.run(lambda: d.replica().all_reduce("sum", mine(d)))
    everything = s.run(lambda: d.replica().all_gather(mine(d), axis=0))
    return [*found, Each(total), Each(everything), s.gather(value, axis=0), Each(value)]


def e01_five_elements(s, d):
    """One is added to each of five elements, in batches of two."""
    steps = s.experimental_distribute_dataset(d.rows())
    return [Each(s.run(lambda x: x + 1, args=(step,))) for step in steps]


SNIPPETS = [
    assigned_in_replicas,
    assigned_across_replicas,
    refused_without_a_rule,
    updated,
    one_variable_a_node,
    made_in_replicas,
    values_of_replicas,
    e01_five_elements,
]


@takes_long()
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.__name__)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_as_tensorflow(layout, snippet):
    theirs = tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
    want = [plain(theirs, one) for one in snippet(theirs, THEIRS)]
    with mpistrat.CentralStorageStrategy(layout.device_names, "CPU:0") as ours:
        assert [plain(ours, one) for one in snippet(ours, OURS)] == want


def test_one_replica_as_tensorflow():
    """Its variables are plain ones, which it assigns to without a rule."""
    found = []
    theirs = tf.distribute.experimental.CentralStorageStrategy(["CPU:0"])
    with mpistrat.CentralStorageStrategy() as ours:
        for s, d in ((theirs, THEIRS), (ours, OURS)):
            v = made(s, d)
            assign(s, v, "assign_add", lambda d=d: mine(d))
            found.append([v.numpy().tolist(), len(s.extended.parameter_devices)])
    assert found[0] == found[1]
