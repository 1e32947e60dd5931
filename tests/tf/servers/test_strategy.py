"""TensorFlow's parameter servers on ranks: variables, functions, data sets, roles, mistakes."""

import functools
import os
import socket
import tempfile
import time

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import steady  # noqa: E402
from helpers.tf.parameter_servers import on_chief  # noqa: E402
from mpistrat.cluster_resolver import MPIClusterResolver  # noqa: E402
from mpistrat.errors import ClosedError, ClusterError, UsageError  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

# With 1 ps two workers, with 2 one.
pytestmark = pytest.mark.mpi(ranks=4, timeout_s=60)


@takes_long()
def test_b84_functions_and_results():
    def chief(s, c):
        with s.scope():
            total = tf.Variable(0.0)

        @tf.function
        def add(x, *, times):
            total.assign_add(x * times)
            return x * times, {"worker": x}

        found = [c.schedule(add, (tf.constant(float(i)),), {"times": 2.0}) for i in range(50)]
        c.join()
        assert c.done()
        assert total.numpy() == 2 * sum(range(50))
        assert c.fetch(found) == [(2.0 * i, {"worker": float(i)}) for i in range(50)]
        assert found[3].fetch()[0] == 6.0
        assert c.fetch(3) == 3

    on_chief(chief)


@takes_long()  # a job of its own
@pytest.mark.mpi(ranks=1, timeout_s=60)
def test_in_one_process_the_roles_are_threads():
    test_b84_functions_and_results()


@takes_long()  # a job of its own
@pytest.mark.mpi(ranks=1, timeout_s=60)
def test_a_role_too_many_in_one_process():
    with refused(UsageError, "rank 0/1 is chief 0, but makes a Server"):
        distribute.Server(MPIClusterResolver(num_ps=1))


def test_the_classes_and_names_are_tensorflows():
    def chief(s, c):
        assert isinstance(s, tf.distribute.experimental.ParameterServerStrategy)
        assert isinstance(c, tf.distribute.experimental.coordinator.ClusterCoordinator)
        assert type(s) is distribute.experimental.ParameterServerStrategy
        assert type(c) is distribute.experimental.coordinator.ClusterCoordinator
        assert c is distribute.coordinator.ClusterCoordinator(s)
        assert c.strategy is s
        assert s.cluster_resolver.task_type == "chief"
        assert s.extended.parameter_devices is not None
        for name in ("RemoteValue", "PerWorkerValue", "PerWorkerValues"):
            assert getattr(distribute.coordinator, name)
        with refused(ValueError, "ClusterCoordinator of a MirroredStrategy"):
            distribute.coordinator.ClusterCoordinator(tf.distribute.MirroredStrategy())
        with refused(TypeError, "tf.function"):
            c.schedule(lambda: 1)

    on_chief(chief)


def test_errors_of_functions_come_once():
    def chief(s, c):
        @tf.function
        def checked(x):
            tf.debugging.assert_greater(x, 0, "not above 0")
            return 3 * x

        bad = c.schedule(checked, (tf.constant(0),))
        with refused(tf.errors.InvalidArgumentError, "not above 0"):
            c.join()
        with refused(tf.errors.InvalidArgumentError, "not above 0"):
            bad.fetch()
        c.join()
        assert c.done()
        assert c.schedule(checked, (tf.constant(2),)).fetch() == 6
        c.schedule(checked, (tf.constant(0),))
        with refused(tf.errors.InvalidArgumentError, "not above 0"):
            while not c.done():
                pass
        assert s.communicator.size == 4

    on_chief(chief)


def test_e19_placement():
    def chief(s, _):
        outside = tf.Variable(0.0)
        with s.scope():
            found = [tf.Variable(float(i)) for i in range(4)]
        assert outside.device == "/job:chief/replica:0/task:0/device:CPU:0"
        want = [f"/job:ps/replica:0/task:{i % 2}/device:CPU:0" for i in range(4)]
        assert [one.device for one in found] == want
        assert [one.numpy() for one in found] == [0.0, 1.0, 2.0, 3.0]

    on_chief(chief, num_ps=2)


@takes_long()
def test_e20_b87_b90_parts():
    class Dense(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.reshape(tf.range(1300.0), [13, 100]), name="w")
            self.b = tf.Variable(1.0, name="b")

        def __call__(self, x):
            return x * self.w

    def chief(s, c):
        with s.scope():
            dense = Dense()
        parts = dense.w.variables
        assert [part.name for part in parts] == [f"w/part_{i}:0" for i in range(5)]
        assert [part.shape[0] for part in parts] == [3, 3, 3, 2, 2]
        assert len(dense.variables) == 6
        assert {part.device.split("/")[3] for part in parts} == {"task:0", "task:1"}
        assert np.array_equal(dense(2.0), 2.0 * np.arange(1300).reshape(13, 100))

        @tf.function
        def look_up(rows):
            return tf.nn.embedding_lookup(dense.w, rows)

        found = c.schedule(look_up, (tf.constant([12, 0, 4]),)).fetch()
        assert found[:, 0].tolist() == [1200.0, 0.0, 400.0]

    five = distribute.experimental.partitioners.FixedShardsPartitioner(5)
    on_chief(chief, num_ps=2, variable_partitioner=five)


@takes_long()
def test_e21_b85_a_data_set_on_each_worker():
    def chief(s, c):
        def dataset_fn():
            return tf.data.Dataset.range(6).shuffle(6).repeat().batch(3)

        data = c.create_per_worker_dataset(dataset_fn)

        @tf.function
        def step(iterator):
            return tf.reduce_sum(s.run(lambda rows: rows, args=(next(iterator),)))

        for _ in range(2):
            iterator = iter(data)
            found = c.fetch([c.schedule(step, (iterator,)) for _ in range(8)])
            assert all(0 + 1 + 2 <= one <= 3 + 4 + 5 for one in found)

    on_chief(chief)


@takes_long()
def test_e15_keras_in_a_loop_of_its_own():
    rows = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    target = (rows.sum(1, keepdims=True) > 0).astype("float32")

    def chief(s, c):
        data = c.create_per_worker_dataset(
            lambda: steady(tf.data.Dataset.from_tensor_slices((rows, target)).repeat().batch(16))
        )
        with s.scope():
            model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
            optimizer = keras.optimizers.Adam(0.05)
            optimizer.build(model.trainable_variables)
            mean = keras.metrics.Mean()
        loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

        @tf.function
        def step(iterator):
            def replica_fn(x, y):
                with tf.GradientTape() as tape:
                    loss = loss_of(y, model(x, training=True))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
                mean.update_state(loss)
                return loss

            return s.run(replica_fn, args=next(iterator))

        means = []
        for _ in range(3):
            mean.reset_state()
            iterator = iter(data)
            losses = [c.schedule(step, (iterator,)) for _ in range(30)]
            c.join()
            means.append(float(mean.result()))
            np.testing.assert_allclose(means[-1], np.mean(c.fetch(losses)), rtol=1e-5)
        assert means[0] > means[1] > means[2]
        assert optimizer.iterations.numpy() == 90  # none is lost between two workers
        with tempfile.TemporaryDirectory() as folder:
            manager = tf.train.CheckpointManager(
                tf.train.Checkpoint(model=model, optimizer=optimizer), folder, max_to_keep=2
            )
            manager.save()
            want = model.get_weights()
            model.set_weights([0 * one for one in want])
            manager.checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
            for one, other in zip(model.get_weights(), want, strict=True):
                assert np.array_equal(one, other)

    on_chief(chief)


def test_e16_e18_roles_said_as_in_tensorflow():
    resolver = MPIClusterResolver(num_ps=2)
    spec = resolver.cluster_spec()
    assert [spec.num_tasks(job) for job in ("chief", "worker", "ps")] == [1, 1, 2]
    if resolver.task_type == "chief":
        with distribute.ParameterServerStrategy(resolver) as s:
            c = distribute.coordinator.ClusterCoordinator(s)
            assert c.schedule(tf.function(lambda: tf.constant(3))).fetch() == 3
    elif resolver.task_type in ("worker", "ps"):
        distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
        ).join()


def test_a_program_that_puts_ours_in_the_place_of_tf_distribute():
    resolver = MPIClusterResolver(num_ps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf, "distribute", distribute)
        if resolver.task_type != "chief":
            tf.distribute.Server(resolver).join()
            return
        with tf.distribute.ParameterServerStrategy(resolver) as s:
            c = tf.distribute.coordinator.ClusterCoordinator(s)
            with s.scope():
                total = tf.Variable(1.0)
            value = c.schedule(tf.function(lambda: total + 1.0))
            assert value.fetch() == 2.0 == c.fetch([value])[0]
            c.join()


def test_tensorflows_own_server_is_still_there():
    server = distribute.Server({"local": ["127.0.0.1:0"]})
    assert isinstance(server, tf.distribute.Server)
    assert server.target.startswith("grpc://127.0.0.1:")


def test_no_proxy_is_asked():
    unproxied = "NO_GRPC_PROXY".lower()

    def chief(s, c):
        assert os.environ[unproxied].split(",") == ["elsewhere", "127.0.0.1"]
        assert c.schedule(tf.function(lambda: tf.constant(3))).fetch() == 3

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("grpc_proxy", "http://127.0.0.1:9")
        patch.setenv(unproxied, "elsewhere")
        on_chief(chief)


def test_several_machines_meet_by_their_names():
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        pytest.skip(f"{name} has no address here")

    def chief(s, c):
        assert name in os.environ["NO_GRPC_PROXY".lower()].split(",")
        assert c.schedule(tf.function(lambda: tf.constant(3))).fetch() == 3

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPISTRAT_NODE_SIZE", "2")  # as if these ranks were on three
        on_chief(chief)


@takes_long()
def test_close_cancels_what_nobody_waited_for():
    def chief(s, c):
        @tf.function
        def long(x):
            while x < 1e9:
                x += 1.0
            return x

        quick = c.schedule(tf.function(lambda: 1.0))
        assert quick.fetch() == 1.0
        found = [c.schedule(long, (tf.constant(0.0),)) for _ in range(20)]
        time.sleep(0.5)  # until a few run
        began = time.monotonic()
        s.close()
        for one in (found[0], found[-1]):  # one that ran, one that did not begin
            for fetch in (one.fetch, one.get, functools.partial(c.fetch, one)):
                with refused(ClosedError, "cancelled, .* was closed; fetch results before"):
                    fetch()
        assert time.monotonic() - began < 30
        assert quick.fetch() == 1.0

    on_chief(chief)


def test_a_closed_strategy_refuses():
    def chief(s, c):
        s.close()
        s.close()
        for call in (lambda: c.schedule(tf.function(lambda: 1)), c.join, c.done):
            with refused(ClosedError, "closed"):
                call()

    on_chief(chief)


# ------------------------------------------------------------------------------------- mistakes


def makes_strategy(resolver):
    distribute.ParameterServerStrategy(resolver)


def makes_server(resolver):
    distribute.Server(resolver)


def rank_of(resolver):
    return resolver.topology.rank


def right(resolver):
    make = makes_server if rank_of(MPIClusterResolver()) else makes_strategy
    make(resolver)


MISTAKES = {
    "all make a strategy": (
        makes_strategy,
        lambda: MPIClusterResolver(num_ps=1),
        "rank 1/4 is worker 0, but makes a ParameterServerStrategy.*rank 3/4 is ps 0",
    ),
    "all make a server": (
        makes_server,
        lambda: MPIClusterResolver(num_ps=1),
        r"rank 0/4 is chief 0, but makes a Server; expected ParameterServerStrategy\(resolver\)",
    ),
    "no parameter servers": (right, MPIClusterResolver, r"num_ps=0; expected .*num_ps=\.\.\."),
    "different numbers of evaluators": (
        right,
        lambda: MPIClusterResolver(
            num_ps=1, num_evaluators=int(MPIClusterResolver().topology.rank == 1)
        ),
        r"num_evaluators by rank is \[0, 1, 0, 0\]",
    ),
    "too few ranks": (
        right,
        lambda: MPIClusterResolver(num_ps=3),
        "num_ps=3 needs 5 ranks or more .* but the job has 4",
    ),
    "another resolver": (
        right,
        tf.distribute.cluster_resolver.TFConfigClusterResolver,
        "expected mpistrat.cluster_resolver.MPIClusterResolver",
    ),
    "different numbers": (
        right,
        lambda: MPIClusterResolver(num_ps=1 + (MPIClusterResolver().topology.rank == 3)),
        r"num_ps by rank is \[1, 1, 1, 2\]",
    ),
    "another role": (
        lambda r: makes_strategy(r) if rank_of(r) == 0 else distribute.Server(r, "worker", 0),
        lambda: MPIClusterResolver(num_ps=1),
        "rank 3/4 is ps 0, but is told to be worker 0",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_told_on_every_rank(what):
    make, resolver, text = MISTAKES[what]
    with refused((UsageError, ClusterError), text):
        make(resolver())
