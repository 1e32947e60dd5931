"""Variables in parts on TensorFlow's parameter servers: made, trained, saved and loaded."""

import tempfile

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.parameter_servers import on_chief  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

pytestmark = [pytest.mark.mpi(ranks=4, timeout_s=60), takes_long()]

WHOLE = np.arange(26, dtype="float32").reshape(13, 2)


def parts_of(variable):
    return getattr(variable, "variables", [variable])


def test_b83_b86_b88_b95_which_are_divided_and_where_they_go():
    asked = []

    def own(shape, dtype):
        asked.append((list(shape), dtype.name))
        return [len(asked)] + [1] * (len(shape) - 1)

    def chief(s, _):
        outside = tf.Variable(WHOLE)
        with s.scope():
            one, two = tf.Variable(WHOLE, name="one"), tf.Variable(WHOLE, name="two")
            with s.extended.colocate_vars_with(two.variables[0]):
                beside = tf.Variable(WHOLE, name="beside")
        assert asked == [([13, 2], "float32")] * 2
        assert [len(parts_of(v)) for v in (outside, one, two, beside)] == [1, 1, 2, 1]
        assert "/job:chief/" in outside.device
        places = {part.device for v in (one, two) for part in parts_of(v)}
        assert places == {f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(2)}
        least = distribute.experimental.partitioners.MinSizePartitioner(256 << 10, 2)
        shapes = [(1 << 16, 1), (1 << 17, 1), (1 << 20, 1)]
        assert [least(tf.TensorShape(n), tf.float32) for n in shapes] == [[1, 1], [2, 1], [2, 1]]

    on_chief(chief, num_ps=2, variable_partitioner=own)


def test_b92_gradients_of_the_parts_train_them_on_a_worker():
    def chief(s, c):
        with s.scope():
            w = tf.Variable(WHOLE, name="w")

        @tf.function
        def step(rate):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.convert_to_tensor(w) ** 2) / 2
            for part, gradient in zip(w.variables, tape.gradient(loss, w.variables), strict=True):
                part.assign_sub(rate * tf.convert_to_tensor(gradient))
            return loss

        losses = [float(c.schedule(step, (tf.constant(0.5),)).fetch()) for _ in range(4)]
        np.testing.assert_allclose(losses, [(WHOLE**2).sum() / 2 / 4**n for n in range(4)])
        np.testing.assert_allclose(tf.convert_to_tensor(w), WHOLE / 16)

    three = distribute.experimental.partitioners.FixedShardsPartitioner(3)
    on_chief(chief, num_ps=2, variable_partitioner=three)


def test_b91_b93_saved_as_one_and_loaded_into_other_numbers_of_parts():
    counts = iter([4, 2, 3, 1])

    def chief(s, _):
        with s.scope():
            four, two, three, one = (tf.Variable((i == 0) * WHOLE) for i in range(4))
        plain = tf.Variable(0 * WHOLE)
        assert [len(parts_of(v)) for v in (four, two, three, one)] == [4, 2, 3, 1]
        with tempfile.TemporaryDirectory() as folder:
            path = tf.train.Checkpoint(w=four).write(f"{folder}/four")
            names = [name for name, _ in tf.train.list_variables(path) if "w" in name]
            assert names == ["w/.ATTRIBUTES/VARIABLE_VALUE"]
            for other in (two, three, one, plain):
                tf.train.Checkpoint(w=other).read(path).assert_consumed()
                assert np.array_equal(tf.convert_to_tensor(other), WHOLE)
            path = tf.train.Checkpoint(w=plain).write(f"{folder}/plain")
            four.assign(0 * WHOLE)
            tf.train.Checkpoint(w=four).read(path).assert_consumed()
            assert np.array_equal(tf.convert_to_tensor(four), WHOLE)

    on_chief(chief, num_ps=2, variable_partitioner=lambda shape, dtype: [next(counts), 1])
