"""Slices whose devices are of another process, of TensorFlow's workers: MPI is here only."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402 - TensorFlow may be missing
from helpers.pretend.tpus import PretendResolver, initialized  # noqa: E402
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

WORKERS = """
import sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
servers = [
    tf.distribute.Server({"worker": {i: "127.0.0.1:0"}}, "worker", i)
    for _ in range(int(sys.argv[1]))
    for i in range(2)
]
print(*(server.target for server in servers), sep=",", flush=True)
sys.stdin.read()
"""
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)


@contextlib.contextmanager
def workers():
    """Give each rank two workers, all in another process; its first becomes the current device."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with contextlib.ExitStack() as stack:
        targets = None
        if world.rank == 0:
            process = subprocess.Popen(
                [sys.executable, "-c", WORKERS, str(world.size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.stdin.close)
            targets = process.stdout.readline().strip().split(",")
        mine = world.bcast(targets)[2 * world.rank : 2 * world.rank + 2]
        resolver = PretendResolver(4, ",".join(mine), hosts=2)
        tf.config.experimental_connect_to_cluster(resolver)
        assert "/job:worker/" in tf.zeros([]).device
        yield resolver


def sums_of_pods(s):
    """Four replicas each, on two hosts."""
    n = s.num_replicas_in_sync
    values = s.experimental_distribute_values_from_function(
        lambda context: tf.range(1.0 + context.replica_id_in_sync_group)
    )
    total = sum(i * (i + 1) / 2 for i in range(n))

    def both():
        nest = {"rows": values, "again": values}
        sums, means = (s.reduce(op, nest, axis=0) for op in ("SUM", "MEAN"))
        return sums["rows"], means["again"], s.gather(values, axis=0)

    for found in both(), tf.function(both)():
        assert float(found[0]) == total
        assert float(found[1]) == pytest.approx(total / (n * (n + 1) / 2))
        assert found[2].numpy().tolist() == [float(k) for i in range(n) for k in range(i + 1)]
    first = s.extended.bridge.broadcast_value(tf.constant(1.0 + s.communicator.rank))
    assert float(first) == 1.0


def data_of_pods(s):
    """As TensorFlow would feed four hosts, of which each slice has two."""
    n, hosts = s.num_replicas_in_sync, 2 * s.communicator.size
    data = tf.data.Dataset.range(6 * n).batch(2 * n)
    batches = list(s.experimental_distribute_dataset(data, ON_HOST))
    for first, batch in zip(range(0, 6 * n, 2 * n), batches, strict=True):
        assert [len(one) for one in s.experimental_local_results(batch)] == [2] * 4
        rows = s.gather(batch, axis=0).numpy()
        assert sorted(rows) == list(range(first, first + 2 * n))
    found = s.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.from_tensors([context.input_pipeline_id]).repeat(2),
        ON_HOST,
    )
    ids = [s.gather(batch, axis=0).numpy().tolist() for batch in found]
    assert ids == [[i for i in range(hosts) for _ in range(2)]]


def steps_of_mirrored(s):
    """One replica each, on the first host."""
    with s.scope():
        weight = tf.Variable(1.0 + s.communicator.rank)

    @tf.function
    def step(batch):
        def fn(rows):
            context = tf.distribute.get_replica_context()
            gradient = context.all_reduce("SUM", tf.reduce_sum(rows) * weight)
            weight.assign_sub(gradient)
            return rows

        return s.reduce("SUM", s.run(fn, args=(batch,)), axis=0)

    data = tf.data.Dataset.from_tensor_slices(np.ones(4, np.float32)).batch(4)
    (total,) = [step(batch) for batch in s.experimental_distribute_dataset(data)]
    assert float(total) == 4
    assert float(weight.numpy()) == 1 - 4


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=120, alone=True)
def test_sums_are_made_here_whatever_the_devices():
    with workers() as resolver, initialized((2, 1, 1, 2), resolver):
        with mpistrat.TPUStrategy(resolver) as s:
            assert s.num_replicas_in_sync == 4 * s.communicator.size
            sums_of_pods(s)
            data_of_pods(s)
        device = "/job:worker/replica:0/task:0/device:CPU:0"
        with TFBackedStrategy(lambda: tf.distribute.MirroredStrategy([device])) as s:
            steps_of_mirrored(s)
