"""TensorFlow's tensors on GPUs are combined there, and not over the host."""

import numpy as np
import pytest

pytest.importorskip("cupy")
tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.gpu_device import carried_on_gpus, gpus_of_tensorflow  # noqa: E402
from mpistrat.errors import MismatchError  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

gpus_of_tensorflow()

pytestmark = [pytest.mark.mpi(ranks=2, timeout_s=120), takes_long(unit="file")]
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "uint8", "complex64")
SHAPES = ((5,), (), (0, 3), (300, 7))
MODES = {"eager": lambda call: call, "graph": tf.function}
in_both_modes = pytest.mark.parametrize("mode", MODES)


def strategy():
    return distribute.MirroredStrategy(["GPU:0"])


def summed(s, mode, op="SUM"):
    """Return a step that combines tensors over the replicas."""
    return MODES[mode](lambda given: s.run(lambda: here().all_reduce(op, given)))


def here():
    return tf.distribute.get_replica_context()


def on_gpu(value, dtype="float32"):
    with tf.device("GPU:0"):
        return tf.identity(tf.constant(value, dtype))


def assert_on_gpu(tensor):
    assert "GPU:0" in tensor.backing_device


@in_both_modes
def test_sums_of_lists_of_any_dtypes_and_shapes(mode):
    with strategy() as s:
        rank = s.communicator.rank
        tensors = [
            on_gpu(np.full(shape, rank + i), dtype)
            for i, (dtype, shape) in enumerate((d, s) for d in DTYPES for s in SHAPES)
        ]
        step = summed(s, mode)
        for _ in range(2):
            with carried_on_gpus() as carried:
                found = step(tensors)
            assert sum(carried) >= sum(len(one.numpy().tobytes()) for one in tensors)
            for i, (one, tensor) in enumerate(zip(found, tensors, strict=True)):
                assert_on_gpu(one)
                assert one.dtype == tensor.dtype
                np.testing.assert_array_equal(one.numpy(), np.full(tensor.shape, 2 * i + 1))


@in_both_modes
def test_means(mode):
    with strategy() as s:
        mine = [on_gpu([s.communicator.rank * 3.0, 1.0]), on_gpu([4, 8], "int64")]
        step = summed(s, mode, "MEAN")
        with carried_on_gpus() as carried:
            found = step(mine)
        assert sum(carried) == 8 + 16
        assert [one.numpy().tolist() for one in found] == [[1.5, 1.0], [4, 8]]
        assert list(map(assert_on_gpu, found)) == [None] * 2


@in_both_modes
def test_integers_of_32_bits_are_in_the_hosts_memory(mode):
    with strategy() as s:
        mine = on_gpu([1, 2], "int32")
        step = summed(s, mode)
        with carried_on_gpus() as carried:
            assert step(mine).numpy().tolist() == [2, 4]
        assert carried == []


@in_both_modes
def test_values_are_reduced_to_the_host(mode):
    with strategy() as s:
        mine = on_gpu([1.0, 2.0])
        with carried_on_gpus() as carried:
            total = MODES[mode](lambda one: s.reduce("SUM", one, axis=None))(mine)
        assert carried == [8]
        assert total.numpy().tolist() == [2.0, 4.0]


def test_rows_and_gathers_go_over_the_host():
    with strategy() as s, carried_on_gpus() as carried:
        rank = s.communicator.rank
        rows = tf.IndexedSlices(on_gpu([[1.0 + rank]]), tf.constant([rank]), tf.constant([3, 1]))
        found = s.run(lambda: here().all_reduce("SUM", rows))
        assert tf.convert_to_tensor(found).numpy().tolist() == [[1.0], [2.0], [0.0]]
        mine = on_gpu([rank] * (rank + 1))
        assert s.gather(mine, axis=0).numpy().tolist() == [0.0, 1.0, 1.0]
        assert carried == []


def test_slices_of_tensorflows_own_strategies():
    slices = tf.distribute.MirroredStrategy(["GPU:0"])
    with distribute.TFBackedStrategy(slices) as s, carried_on_gpus() as carried:
        total = s.run(lambda: here().all_reduce("SUM", on_gpu([1.0, 2.0])))
        assert total.numpy().tolist() == [2.0, 4.0]
        assert carried == [8]


def test_variables_begin_with_the_value_of_rank_0():
    with strategy() as s:
        rank = s.communicator.rank
        with carried_on_gpus() as carried, s.scope():
            variable = tf.Variable(np.full(9, rank + 7.0))
            count = tf.Variable(rank + 7)
        assert carried == [72]  # what is of 32 bits goes over the host
        assert "GPU:0" in variable.device
        assert (variable.numpy().tolist(), int(count.numpy())) == ([7.0] * 9, 7)


def test_training_is_that_of_one_process_with_all_rows():
    with strategy() as s:
        rows = np.arange(24, dtype="float32").reshape(8, 3) / 24
        mine = rows[s.communicator.rank * 4 :][:4]
        with s.scope():
            weights = [tf.Variable(tf.ones([3, 2])), tf.Variable(tf.zeros([2]))]

        def gradients(x, w):
            with tf.GradientTape() as tape:
                tape.watch(w)
                loss = tf.reduce_sum((x @ w[0] + w[1]) ** 2)
            return tape.gradient(loss, w)

        def replica_fn(x):
            sums = here().all_reduce("SUM", gradients(x, [one.value() for one in weights]))
            for weight, one in zip(weights, sums, strict=True):
                weight.assign(weight - 0.01 * one)

        step = tf.function(lambda x: s.run(replica_fn, (x,)))
        with carried_on_gpus() as carried:
            for _ in range(3):
                step(mine)
        assert sum(carried) == 3 * (6 + 2) * 4
        expected = [np.ones([3, 2], "float32"), np.zeros([2], "float32")]
        for _ in range(3):
            changes = gradients(tf.constant(rows), [tf.constant(one) for one in expected])
            expected = [one - 0.01 * change for one, change in zip(expected, changes, strict=True)]
        for weight, one in zip(weights, expected, strict=True):
            np.testing.assert_allclose(weight.numpy(), one, rtol=1e-5)


@in_both_modes
def test_unequal_shapes_are_an_error_on_all_ranks(mode):
    with strategy() as s:
        mine = on_gpu([1.0] * (2 + s.communicator.rank))
        with refused(MismatchError, "shape"):
            summed(s, mode)(mine)


def test_a_tensor_of_the_host_among_those_of_gpus_is_an_error_on_all_ranks():
    with strategy() as s:
        with tf.device("GPU:0" if s.communicator.rank else "CPU:0"):
            mine = tf.identity(tf.constant([1.0, 2.0]))
        with refused(MismatchError, "GPU"):
            summed(s, "eager")(mine)
