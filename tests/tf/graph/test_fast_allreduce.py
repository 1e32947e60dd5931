"""All-reduces of one tensor that native code begins, and Python ends where it has to."""

import contextlib
import gc
import time

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import CommunicationError  # noqa: E402
from mpistrat.tensorflow.graph import native_op, tensor_collective  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=120)
_WAITING = 1  # MpistratStatus of kernels/include/mpistrat/calls.h
FAILED = (tf.errors.OpError, CommunicationError)
MODES = {"eager": lambda body: body, "function": tf.function}


def here():
    return tf.distribute.get_replica_context()


def reducing(strategy, mode, op="SUM"):
    return MODES[mode](lambda x: strategy.run(lambda x: here().all_reduce(op, x), (x,)))


@contextlib.contextmanager
def asked():
    """Give what Python is asked for: "run" for calls to begin, statuses of calls to carry on."""
    seen = []
    run, carry_on = tensor_collective._run, tensor_collective._carry_on

    def watched_run(key, *memory):
        seen.append("run")
        return run(key, *memory)

    def watched_carry_on(key, status, *rest):
        seen.append(status)
        return carry_on(key, status, *rest)

    tensor_collective._run, tensor_collective._carry_on = watched_run, watched_carry_on
    try:
        yield seen
    finally:
        tensor_collective._run, tensor_collective._carry_on = run, carry_on


def is_native(strategy):
    return native_op.load() is not None and strategy.communicator.backend.fast is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int8"])
def test_python_is_asked_once_for_a_kind_of_call(mode, dtype):
    with asked() as seen, distribute.MirroredStrategy(["CPU:0"]) as s:
        step = reducing(s, mode)
        for count in (1, 300, 20_000):
            mine = tf.cast(tf.range(count) % 50 + s.communicator.rank, dtype)
            want = tf.cast((tf.range(count) % 50) * 2 + 1, dtype)
            for _ in range(3):
                s.communicator.barrier()
                assert (step(mine).numpy() == want.numpy()).all()
        if is_native(s):
            assert seen.count("run") == 3  # once for each shape


@pytest.mark.parametrize("mode", MODES)
def test_a_late_peer_is_waited_for_by_python(mode):
    with asked() as seen, distribute.MirroredStrategy(["CPU:0"]) as s:
        step = reducing(s, mode)
        step(tf.ones([7]))
        del seen[:]
        for late in range(4):
            s.communicator.barrier()
            if s.communicator.rank == late % 2:
                time.sleep(0.1)
            assert (step(tf.fill([7], late + 1.0)).numpy() == 2 * late + 2).all()
        if is_native(s):
            assert seen.count(_WAITING) >= 2  # a rank that waits for 0.1 s does so in Python
            assert "run" not in seen


@pytest.mark.parametrize("mode", MODES)
def test_calls_that_differ(mode):
    check_calls_that_differ(mode, [2], [3], r"\(2,\).*\(3,\)")


@pytest.mark.parametrize("mode", MODES)
def test_calls_of_as_many_elements_that_differ(mode):
    check_calls_that_differ(mode, [2, 3], [3, 2], r"\(2, 3\).*\(3, 2\)")


def check_calls_that_differ(mode, *shapes_and_words):
    *shapes, words = shapes_and_words
    with asked() as seen:
        s = distribute.MirroredStrategy(["CPU:0"])
        step = reducing(s, mode)
        for shape in shapes:
            step(tf.ones(shape))
        del seen[:]
        with refused(tf.errors.InvalidArgumentError, f"(?s)different.*{words}"):
            step(tf.ones(shapes[s.communicator.rank]))
    assert "run" not in seen or not is_native(s)
    assert (step(tf.ones([2])).numpy() == 2.0).all()
    drop(s)


@pytest.mark.parametrize("mode", MODES)
def test_a_peer_that_is_gone(mode):
    s = distribute.MirroredStrategy(["CPU:0"])
    step = reducing(s, mode)
    step(tf.ones([2]))
    s.communicator.barrier()
    if s.communicator.rank == 0:
        with refused(FAILED, "(?s)rank 1 failed.*of its own"):
            step(tf.ones([2]))
    else:
        time.sleep(0.05)
        s.communicator.fail(ValueError("of its own"))
    drop(s)


@takes_long()
def test_calls_of_python_between_those_of_a_graph():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        comm = s.communicator
        step = reducing(s, "function")
        for count in range(1, 200):
            total = step(tf.ones([5]))
            assert comm.allreduce(count) == 2 * count
            pending = comm.iallreduce(np.full(3, comm.rank + 1.0))
            more = step(total)
            assert (pending.wait() == 3.0).all()
            assert (more.numpy() == 4.0).all()
        names = {record.op for record in comm.records()}
        assert names == {"allreduce"}


def traced_and_closed():
    s = distribute.MirroredStrategy(["CPU:0"])
    graph = tf.function(lambda x: s.extended.bridge.all_reduce([x])[0])
    assert (graph(tf.ones([2])).numpy() == 2.0).all()
    traced = graph.get_concrete_function(tf.TensorSpec([2]))
    s.close()
    with refused(tf.errors.OpError, "closed"):
        traced(tf.ones([2]))
    return traced


@takes_long()
def test_the_graph_of_a_strategy_that_is_gone():
    traced = traced_and_closed()
    gc.collect()
    with refused(tf.errors.OpError, "closed|has the key"):
        traced(tf.ones([2]))
