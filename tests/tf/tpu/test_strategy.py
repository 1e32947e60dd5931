"""`TPUStrategy` without a TPU: what the host does is run, what a TPU would do is traced."""

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402
from helpers.pretend.tpus import PretendResolver, initialized, traced  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402 - TensorFlow may be missing
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402
from mpistrat.tensorflow.tpu.assignment import device_assignment, topology_of  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

RANKS = pytest.mark.mpi(ranks=[1, 2, 3] if with_all() else [2], timeout_s=60)


def tpu(cores=2, **how):
    return mpistrat.TPUStrategy(PretendResolver(cores), **how)


def parallel(logical, replicas, mesh=(2, 2, 1, 2)):
    """Return a strategy whose replicas have several logical devices."""
    shape = {1: [1, 1, 1, 1], 2: [1, 1, 1, 2], 8: [2, 2, 1, 2]}[logical]
    cores = mesh[0] * mesh[1] * mesh[2] * mesh[3]
    return tpu(
        cores,
        experimental_device_assignment=lambda topology: device_assignment(
            topology, shape, num_replicas=replicas
        ),
    )


def kinds(function, *args):
    return [node.op for node in traced(function, *args)]


# -------------------------------------------------------------------------- run on the host here


@takes_long()
@RANKS
@pytest.mark.parametrize("driver", [None, 0])
def test_values_datasets_and_variables(driver):
    with initialized(), tpu(driver=driver) as s:
        n = 2 * (1 if driver is not None else s.communicator.size)
        assert s.num_replicas_in_sync == n
        values = s.experimental_distribute_values_from_function(
            lambda context: tf.range(1.0 + context.replica_id_in_sync_group)
        )
        sums = [sum(range(i + 1)) for i in range(n)]
        assert float(s.reduce("SUM", values, axis=0)) == sum(sums)
        rows = n * (n + 1) / 2
        assert float(s.reduce("MEAN", values, axis=0)) == pytest.approx(sum(sums) / rows)
        empty = s.experimental_distribute_values_from_function(lambda _: tf.ones([3, 0]))
        for op in ("SUM", "MEAN"):
            assert s.reduce(op, empty, axis=0).shape == [0]
        block = s.experimental_distribute_values_from_function(lambda _: tf.ones([3, 4, 5]))
        for axis in (-2, tf.constant(1, tf.int64), tf.constant([1], tf.int64)):
            assert s.reduce("MEAN", block, axis).numpy().tolist() == [[1.0] * 5] * 3
        gathered = s.gather(values, axis=0).numpy().tolist()
        assert gathered == [float(k) for i in range(n) for k in range(i + 1)]
        ids = s.experimental_distribute_values_from_function(
            lambda context: tf.constant(context.replica_id_in_sync_group)
        )
        assert int(s.reduce("SUM", ids, axis=None)) == n * (n - 1) // 2
        assert float(s.reduce("MEAN", ids, axis=None)) == (n - 1) / 2
        calls = len(s.communicator.records())
        nest = s.reduce("MEAN", {"ids": ids, "more": [ids, ids]}, axis=None)
        assert [float(one) for one in tf.nest.flatten(nest)] == [(n - 1) / 2] * 3
        if s.communicator.size > 1:
            assert len(s.communicator.records()) == calls + 1
        dataset = s.experimental_distribute_dataset(tf.data.Dataset.range(4 * n).batch(2 * n))
        seen = [s.gather(batch, axis=0).numpy().tolist() for batch in dataset]
        assert [sorted(rows) for rows in seen] == [
            list(range(2 * n)),
            list(range(2 * n, 4 * n)),
        ]
        with s.scope():
            variable = tf.Variable(1.0 + s.communicator.rank)
        assert s.on_driver(lambda: float(variable.numpy())) == 1.0


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_tpus_meet_tpus_only():
    from mpi4py import MPI

    def make():
        kinds = tf.distribute.TPUStrategy, tf.distribute.OneDeviceStrategy
        return kinds[MPI.COMM_WORLD.rank]((PretendResolver(), "CPU:0")[MPI.COMM_WORLD.rank])

    with (
        initialized(),
        pytest.raises(UsageError, match=r"'TPUStr.*', 'One.*TPUs on all"),
    ):
        TFBackedStrategy(make)


@takes_long()
@RANKS
def test_datasets_of_a_function_for_each_host():
    with initialized(), tpu() as s:

        def pipeline(context):
            assert context.num_replicas_in_sync == 2 * s.communicator.size
            assert context.num_input_pipelines == s.communicator.size
            return tf.data.Dataset.from_tensors([context.input_pipeline_id]).repeat(2)

        per_replica = tf.distribute.InputOptions(
            experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA
        )
        with pytest.raises(NotImplementedError, match="PER_REPLICA"):
            s.distribute_datasets_from_function(pipeline, per_replica)
        found = s.distribute_datasets_from_function(pipeline)
        ids = [s.gather(batch, axis=0).numpy().tolist() for batch in found]
        assert ids == [[i for i in range(s.communicator.size) for _ in range(2)]]


@pytest.mark.mpi(ranks=2, timeout_s=30)
@pytest.mark.parametrize("dtype", [None, "float32", "int64"])  # None: it is summed
def test_a_program_cannot_reach_other_slices(dtype):
    def fn():
        replica = tf.distribute.get_replica_context()
        if dtype is None:
            return replica.all_reduce("SUM", tf.ones([2]))
        return replica.all_gather(tf.ones([2], dtype), axis=0)

    # Traced, a mistake breaks the communicator, so it is closed without the others.
    with initialized():
        s = tpu()
        with pytest.raises(ValueError, match="where the other slices cannot be reached"):
            kinds(lambda: s.run(fn))
        drop(s)


# --------------------------------------------------------------------------------- traced here


def test_e28_run():
    with initialized(), tpu() as s:

        def step():
            values = s.experimental_distribute_values_from_function(
                lambda context: context.num_replicas_in_sync
            )
            return s.run(lambda x: x * 2, args=(values,))

        found = kinds(step)
        assert found.count("TPUReplicateMetadata") == 1
        assert found.count("TPUReplicatedOutput") == 1


def test_collectives_in_a_program():
    with initialized(), tpu() as s:

        def reduced():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("SUM", tf.ones([2]))

        def gathered():
            return tf.distribute.get_replica_context().all_gather(tf.ones([2]), axis=0)

        assert kinds(lambda: s.run(reduced)).count("CrossReplicaSum") == 1
        assert kinds(lambda: s.run(gathered)).count("CrossReplicaSum") == 1


def test_eager_functions_are_refused_as_documented():
    with initialized(), tpu() as s, pytest.raises(NotImplementedError, match="pure eager"):
        s.run(lambda: 1)


# ------------------------------------------------------------------------------ logical devices


def sharding(s, annotate):
    """Return the annotations in a traced program, decoded."""
    from tensorflow.compiler.xla import xla_data_pb2

    def program():
        return annotate()

    annotations = [one for one in traced(lambda: s.run(program)) if one.op == "XlaSharding"]
    return [xla_data_pb2.OpSharding.FromString(one.attr["_XlaSharding"].s) for one in annotations]


def test_b102_b103_assign():
    with initialized((2, 2, 1, 2)), parallel(2, 4) as s:
        assert s.num_replicas_in_sync == 4
        (found,) = sharding(s, lambda: s.experimental_assign_to_logical_device(tf.ones([2]), 1))
        assert list(found.tile_assignment_devices) == [1]
        for wrong in (2, 7):
            with pytest.raises(UsageError, match="experimental_assign_to_logical_device"):
                s.experimental_assign_to_logical_device(tf.ones([2]), wrong)


def test_b104_b105_split_and_replicate():
    with initialized((2, 2, 1, 2)), parallel(8, 1) as s:
        images = tf.ones([1, 4, 8, 3])
        split = s.experimental_split_to_logical_devices
        (found,) = sharding(s, lambda: split(images, [1, 2, 4, 1]))
        assert list(found.tile_assignment_dimensions) == [1, 2, 4, 1]
        assert list(found.tile_assignment_devices) == list(range(8))
        (found,) = sharding(s, lambda: s.experimental_replicate_to_logical_devices(images))
        assert found.type == found.REPLICATED
        for wrong in ([1, 2, 4], [1, 2, 2, 1], [1, 1, 8, 3], [1, 8, 1, 1]):
            with pytest.raises(UsageError, match="experimental_split_to_logical_devices"):
                split(images, wrong)


def test_b106_more_parts_than_logical_devices():
    with (
        initialized((2, 2, 1, 2)),
        parallel(2, 4) as s,
        pytest.raises(ValueError, match="product"),
    ):
        s.experimental_split_to_logical_devices(tf.ones([1, 4, 8, 3]), [1, 2, 4, 1])


@pytest.mark.parametrize(
    ("mesh", "hosts", "text"),
    [
        ([2, 2, 1], 1, "four positive"),
        ([2, 0, 1, 2], 1, "four"),
        ([2, 2, 1, 2], 3, "a divisor"),
        ([2, 2, 1, 2], 8, "4 chips of .* on hosts=8"),
    ],
)
def test_wrong_topologies(mesh, hosts, text):
    with pytest.raises(UsageError, match=text):
        topology_of(mesh, hosts)


@pytest.mark.parametrize(
    ("shape", "replicas", "text"),
    [
        ([1, 2, 2, 2], 1, "does not fit"),  # B107: as the page has it, not of a v3-8
        ([1, 1, 1, 2], 5, "requested 5 replicas but only 4"),
        ([1, 1, 2], 1, "must have shape"),
        ([0, 1, 1, 1], 1, "must be positive"),
    ],
)
def test_b101_b107_wrong_assignments(shape, replicas, text):
    with pytest.raises(UsageError, match=text):
        device_assignment(topology_of([2, 2, 1, 2]), shape, replicas)
    with pytest.raises(UsageError, match="not a Topology object"):
        device_assignment("a topology", shape)


def test_cores_of_hosts():
    chips = topology_of([4, 4, 1, 2], hosts=4).device_coordinates[:, ::2, :2].tolist()
    assert chips == [
        [[x, y], [x + 1, y], [x, y + 1], [x + 1, y + 1]] for y in (0, 2) for x in (0, 2)
    ]
    topology = topology_of([4, 2, 1, 2], hosts=2)
    assert topology.num_tasks == 2
    assert topology.num_tpus_per_task == 8
    again = tf.tpu.experimental.Topology(serialized=topology.serialized())
    assert again.device_coordinates.tolist() == topology.device_coordinates.tolist()
    whole = device_assignment(topology, [4, 2, 1, 2], 1)
    assert (whole.num_replicas, whole.num_cores_per_replica) == (1, 16)
