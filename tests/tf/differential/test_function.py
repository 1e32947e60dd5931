"""tf.function, control flow and dtypes over replicas, as TensorFlow has them."""

import gc
import weakref

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.cases import SPREAD, raised, same  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

DTYPES = ["float16", "float32", "float64", "int32", "int64"]
NOT_EVERYWHERE = ["bfloat16", "complex64"]  # as TensorFlow's gather, and its sum
ONE_DEVICE = [case for case in SPREAD if case.devices == 1]


def here():
    return tf.distribute.get_replica_context()


def number(dtype=tf.float32):
    return tf.cast(here().replica_id_in_sync_group + 1, dtype)


@takes_long()
@same()
def test_dtypes(s):
    @tf.function
    def step():
        values = {name: s.run(lambda n=name: number(n) * tf.ones([3], n)) for name in DTYPES}
        sums = {name: s.reduce("SUM", value, axis=None) for name, value in values.items()}
        rows = {name: s.gather(value, axis=0) for name, value in values.items()}
        return sums, rows

    return step()


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_more_dtypes(layout):
    with layout.ours() as s:
        for name in NOT_EVERYWHERE:
            each = list(range(1, layout.replicas + 1))
            rows = s.gather(s.run(lambda n=name: tf.stack([number(n)])), axis=0)
            assert tf.cast(rows, tf.float64).numpy().tolist() == each
            total = s.run(lambda n=name: here().all_reduce("SUM", number(n)))
            for one in s.experimental_local_results(total):
                assert one.dtype == name
                assert tf.cast(one, tf.float64).numpy() == sum(each)


@same()
def test_dtypes_inside_replicas(s):
    def fn():
        return [here().all_reduce("SUM", number(name) * tf.ones([2], name)) for name in DTYPES]

    return s.run(fn)


@same()
def test_other_dtypes(s):
    kinds = ["int8", "uint8", "int16", "complex128"]
    return {name: s.reduce("SUM", s.run(lambda n=name: number(n)), axis=None) for name in kinds}


@takes_long()
@pytest.mark.parametrize("layout", ONE_DEVICE, ids=str)
def test_collectives_in_control_flow_of_replicas(layout):
    # TensorFlow's Mirrored refuses them, and so does ours with several devices on a rank.
    @tf.function
    def choose(s, is_on):
        def fn():
            return tf.cond(is_on, lambda: here().all_reduce("SUM", number()), number)

        return s.run(fn)

    @tf.function
    def loop(s, n):
        def fn():
            total = number()
            for i in tf.range(n):
                here().all_reduce("SUM", tf.ones([5]))
                total += here().all_reduce("SUM", number() * tf.cast(i, tf.float32))
            return total

        return s.run(fn)

    with layout.ours() as s:
        mine = 1.0 + s.communicator.rank
        assert choose(s, tf.constant(True)).numpy() == 3.0
        assert choose(s, tf.constant(False)).numpy() == mine
        assert loop(s, tf.constant(4)).numpy() == mine + 3.0 * (0 + 1 + 2 + 3)


@same([case for case in SPREAD if case.devices > 1])
def test_no_collectives_in_control_flow_of_replicas(s):
    @tf.function
    def choose(is_on):
        return s.run(lambda: tf.cond(is_on, lambda: here().all_reduce("SUM", number()), number))

    return raised(lambda: choose(tf.constant(True)))


@same()
def test_cond_across_replicas(s):
    @tf.function
    def step(n):
        value = s.run(number)
        if n > 2:
            return s.reduce("SUM", value, axis=None)
        return s.reduce("MEAN", value, axis=None)

    return [step(tf.constant(3)), step(tf.constant(1))]


@takes_long()
@same()
def test_while_loop(s):
    @tf.function
    def steps(n):
        total = tf.constant(0.0)
        for i in tf.range(n):
            value = s.run(lambda i=i: number() * tf.cast(i, tf.float32))
            total += s.reduce("SUM", value, axis=None)
        return total

    return [steps(tf.constant(4)), steps(tf.constant(0))]


@takes_long()
@same()
def test_collectives_without_dependence(s):
    @tf.function
    def step():
        def fn():
            x = number()
            context = here()
            a = context.all_reduce("SUM", x)
            b = context.all_reduce("MEAN", x * 2.0)
            c = context.all_gather(tf.stack([x]), axis=0)
            d, e = context.all_reduce("SUM", [x, tf.stack([x, x])])
            return a, b, c, d, e, context.all_reduce("SUM", tf.constant(2.0))

        rows = s.run(lambda: tf.stack([number()]))
        return s.run(fn), s.reduce("SUM", rows, axis=None), s.gather(rows, axis=0)

    return [step() for _ in range(3)]


@same()
def test_unused_collectives_run_all_the_same(s):
    @tf.function
    def step():
        def fn():
            here().all_reduce("SUM", number())
            return here().all_reduce("SUM", number() * 2.0)

        return s.run(fn)

    return step()


@same()
def test_unequal_shapes_between_traces(s):
    @tf.function
    def step(x):
        return s.run(lambda: here().all_reduce("SUM", x * number()))

    return [step(tf.ones([n])) for n in (1, 3, 1)]


@same()
def test_unknown_shapes(s):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
    def step(x):
        total = s.run(lambda: here().all_reduce("SUM", x * number()))
        return total, s.gather(s.run(lambda: x * number()), axis=1)

    return [step(tf.ones([2, 1])), step(tf.ones([1, 3])), step(tf.ones([2, 3]))]


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_empty_values(layout):
    # TensorFlow's process dies of a gather without rows.
    with layout.ours() as s:
        value = s.run(lambda: tf.zeros([0, 3]))
        for call in (s.gather, tf.function(s.gather)):
            assert call(value, axis=0).shape == (0, 3)
            assert call(value, axis=1).shape == (0, 3 * layout.replicas)
        assert s.reduce("SUM", value, axis=None).shape == (0, 3)
        assert s.reduce("SUM", value, axis=0).numpy().tolist() == [0.0] * 3


@same()
def test_errors_in_a_graph(s):
    @tf.function
    def step(n):
        def fn():
            tf.debugging.assert_less(n, 3)
            return here().all_reduce("SUM", number())

        return s.run(fn)

    return [step(tf.constant(1)), raised(lambda: step(tf.constant(5))), step(tf.constant(2))]


@takes_long()
@same()
def test_nested_functions(s):
    replica_fn = tf.function(lambda x: x * 2.0)

    @tf.function
    def step():
        return s.run(lambda: here().all_reduce("SUM", replica_fn(number())))

    return [s.run(lambda: replica_fn(number())), step(), step()]


@takes_long()
@pytest.mark.parametrize("layout", ONE_DEVICE, ids=str)
def test_collectives_in_functions_of_replicas(layout):
    # TensorFlow's Mirrored refuses them, and so does ours with several devices on a rank.
    replica_fn = tf.function(lambda x: here().all_reduce("SUM", x))
    with layout.ours() as s:
        step = tf.function(lambda: s.run(lambda: replica_fn(number())))
        assert [step().numpy(), s.run(lambda: replica_fn(number())).numpy()] == [3.0, 3.0]


@takes_long()
@pytest.mark.parametrize("layout", ONE_DEVICE, ids=str)
def test_collectives_in_branches_and_functions_keep_their_order(layout):
    # Shapes tell them apart; a variable in branch and function makes TensorFlow order by that.
    with layout.ours() as s:
        with s.scope():
            total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

        @tf.function
        def inner(rows):
            total.assign_add(tf.reduce_mean(here().all_reduce("SUM", tf.ones([rows]))))

        def replica_fn(step):
            here().all_reduce("SUM", tf.ones([2]))
            tf.cond(step % 2 == 0, lambda: total.assign_add(1.0), lambda: tf.identity(total))
            here().all_reduce("SUM", tf.ones([3]))
            inner(1000)
            here().all_reduce("SUM", tf.ones([4]))
            inner(5)

        steps = tf.function(lambda step: s.run(replica_fn, (step,)))
        for step in range(100):
            steps(tf.constant(step))
        assert total.numpy() == 50 * layout.replicas + 200 * layout.replicas**2


@takes_long()
@pytest.mark.parametrize("layout", ONE_DEVICE, ids=str)
def test_collectives_of_a_gradient_keep_their_order(layout):
    # TensorFlow itself orders nothing in the function that computes a function's gradient.
    with layout.ours() as s:

        @tf.function
        def losses(x):
            parts = [here().all_reduce("SUM", tf.ones([rows]) * x) for rows in range(1, 9)]
            return tf.add_n([tf.reduce_sum(part) for part in parts])

        def replica_fn(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = losses(x)
            return tape.gradient(loss, x)

        for _ in range(30):
            found = s.run(replica_fn, (tf.constant(2.0),))
            assert found.numpy() == 36.0 * layout.replicas


FUNCTIONS = {
    "all_reduce": lambda x: here().all_reduce("SUM", x * number()),
    "mean": lambda x: here().all_reduce("MEAN", {"a": x * number(), "b": [number()]}),
    "all_gather": lambda x: here().all_gather(tf.stack([x, x * number()]), axis=0),
    "nothing": lambda x: x * number(),
    "constant": lambda x: 3.0,
}


@takes_long()
@same()
def test_functions_that_are_run(s):
    inputs = s.experimental_distribute_values_from_function(
        lambda c: tf.cast(c.replica_id_in_sync_group, tf.float32)
    )
    found = {}
    for name, fn in FUNCTIONS.items():
        replica_fn = tf.function(fn)
        outer = tf.function(lambda x, f=replica_fn: s.run(f, (x,)))
        found[name] = [s.run(replica_fn, (inputs,)), s.run(replica_fn, args=(tf.constant(2.0),))]
        found[name] += [s.run(replica_fn, kwargs={"x": inputs}), outer(inputs)]
    return found


@takes_long()
@same()
def test_gradients_in_functions_that_are_run(s):
    @tf.function
    def replica_fn(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = here().all_reduce("SUM", x * number())
            rows = here().all_gather(tf.stack([x, x * x]), axis=0)
            loss = total * total + tf.reduce_sum(rows**3)
        return loss, tape.gradient(loss, x)

    return [s.run(replica_fn, (tf.constant(x),)) for x in (2.0, 3.0)]


@same()
def test_functions_that_are_run_are_converted(s):
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def replica_fn(n):
        total = number()
        if n > 2:
            total += 10.0
        for i in tf.range(n):
            total += tf.cast(i, tf.float32)
        return here().all_reduce("SUM", total)

    return [s.run(replica_fn, (tf.constant(n),)) for n in (1, 4)]


@same()
def test_functions_that_are_run_change_variables(s):
    with s.scope():
        summed = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
        own = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    @tf.function
    def replica_fn(x):
        summed.assign_add(x * number())
        own.assign_add(number())
        return tf.identity(summed)

    found = [s.run(replica_fn, (tf.constant(2.0),)) for _ in range(2)]
    return [*found, summed.read_value(), own.read_value()]


@same()
def test_errors_in_functions_that_are_run(s):
    @tf.function
    def replica_fn(x):
        tf.debugging.assert_less(x, 3.0)
        return here().all_reduce("SUM", x * number())

    def run(x):
        return s.run(replica_fn, (tf.constant(x),))

    return [run(1.0), raised(lambda: run(5.0)), run(2.0)]


@takes_long()
@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_functions_that_are_run_are_traced_once_and_forgotten(layout):
    traced = []

    def fn(x):
        traced.append(x)
        return here().all_reduce("SUM", x * number())

    with layout.ours() as s:
        replica_fn = tf.function(fn)
        for value in (1.0, 2.0, 3.0):
            s.run(replica_fn, (tf.constant(value),))
        assert len(traced) == layout.devices
        with layout.ours() as another:
            total = another.run(replica_fn, (tf.constant(2.0),))
            each = 2.0 * sum(range(1, layout.replicas + 1))
            found = another.experimental_local_results(total)
            assert [one.numpy() for one in found] == [each] * layout.devices
        gone = weakref.ref(replica_fn)
        del replica_fn
        gc.collect()
        assert gone() is None


@takes_long()
@pytest.mark.mpi(ranks=3, timeout_s=60)
@pytest.mark.parametrize("devices", [1, 2])
def test_functions_that_are_run_on_three_ranks(devices):
    with distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)]) as s:
        replica_fn = tf.function(lambda x: here().all_reduce("SUM", x * number()))
        found = s.experimental_local_results(s.run(replica_fn, (tf.constant(2.0),)))
        each = 2.0 * sum(range(1, 3 * devices + 1))
        assert [one.numpy() for one in found] == [each] * devices
