"""Transfers of several strategies, threads and graphs at once: none is taken for another one."""

import pytest

pytest.importorskip("horovod.tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(150)

START = """
import os, signal, sys, threading, time
import numpy as np
import mpistrat
import mpistrat.tensorflow as distribute
import tensorflow as tf

def made():
    return distribute.MirroredStrategy(cross_device_ops=distribute.HorovodAllReduce())

strategy = made()
rank = strategy.extended.bridge.rank

def reduce(x):
    return strategy.reduce("SUM", x, axis=None)
"""


def run(body, **env):
    """Return the lines that each rank printed at the end of a program on two ranks."""
    result = run_job(["-c", START + body], 2, 60, env=env)
    assert not result.timed_out, result.output
    return result


TWO_STRATEGIES = """
other = made()
late = (strategy if rank else other).extended.bridge._operations._gates
hand_over = late.hand_over

def slowly(*arguments):  # as if the threads ran in another order on each rank
    hand_over(*arguments)
    time.sleep(0.3)

late.hand_over = slowly
sums = {}

def work(one, value):
    sums[value] = float(one.reduce("SUM", tf.constant(value), axis=None))

threads = [threading.Thread(target=work, args=pair) for pair in ((strategy, 1.0), (other, 100.0))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sums == {1.0: 2.0, 100.0: 200.0}, sums)
"""

ARRAYS_BESIDE_TENSORS = """
one, two = (mpistrat.Communicator(None, "horovod") for _ in range(2))
for _ in range(5):
    first, second = one.iallreduce(np.full(1 << 20, 1.0)), two.iallreduce(np.full(1 << 20, 100.0))
    for _ in range(50): first.test(), second.test()
    found = reduce(tf.fill([1 << 20], 10.0))
    sums = first.wait()[0], second.wait()[0], float(found[0])
    if sums != (2.0, 200.0, 20.0): break
print(sums == (2.0, 200.0, 20.0), sums)
one.close(); two.close()
"""

THE_PROGRAMS_OWN = """
import horovod.tensorflow as hvd
found = {}
gates = strategy.extended.bridge._operations._gates
hand_over = gates.hand_over

def slowly(*arguments):
    hand_over(*arguments)
    time.sleep(0.3 * rank)

gates.hand_over = slowly

def own():
    time.sleep(0.1 * (1 - rank))
    found["own"] = float(hvd.allreduce(tf.constant(100.0), op=hvd.Sum, name="mine"))

thread = threading.Thread(target=own)
thread.start()
found["ours"] = float(reduce(tf.constant(1.0)))
thread.join()
print(found == {"own": 200.0, "ours": 2.0}, found)
"""

OTHER_GRAPHS = """
one, two = tf.function(reduce), tf.function(lambda x: (reduce(x), reduce(x)))
x = tf.ones([3])
found = two(x) if rank == 0 else (one(x), reduce(x))
print([one.numpy().tolist() for one in found] == [[2.0] * 3] * 2)
"""

FAILS_BESIDE = """
graph, x, failures = tf.function(reduce), tf.ones([1 << 20]), []

@tf.function
def bad(text):
    return tf.strings.to_number(text)

def other():
    while len(failures) < 40:
        try:
            bad(tf.constant("rows/horovod.csv"))
        except tf.errors.InvalidArgumentError as error:
            failures.append("Horovod's" in str(error))
        time.sleep(0.002)

graph(x)
thread = threading.Thread(target=other)
thread.start()
sums = {float(graph(x)[-1]) for _ in range(20)}
thread.join()
print(sums == {2.0} and not any(failures), sums)
"""


@takes_long()
@pytest.mark.parametrize(
    "body",
    [
        TWO_STRATEGIES,
        ARRAYS_BESIDE_TENSORS,
        OTHER_GRAPHS,
        FAILS_BESIDE,
        pytest.param(THE_PROGRAMS_OWN, marks=takes_long()),
    ],
    ids=["strategies", "arrays", "graphs", "failures", "own"],
)
def test_nothing_is_mixed_up(body):
    result = run(body).check()
    assert [rank.stdout.split()[0] for rank in result.ranks] == ["True", "True"], result.output


INTERRUPTED = """
x = tf.ones([1 << 22])
reduce(x)
if rank == 0:
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    while True: reduce(x)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    reduce(x)
"""


@takes_long()
def test_an_interrupt_that_the_program_catches_is_told_at_once():
    result = run(INTERRUPTED, MPISTRAT_TIMEOUT="50")
    assert result.ranks[0].stdout == "interrupted\n"
    assert result.returncode != 0
    assert result.duration_s < 40
    # Its traceback may be missing: mpirun ends it once rank 0 has ended.
    assert "rank 0 gave up with" in result.ranks[1].stderr
    assert "KeyboardInterrupt" in result.ranks[1].stderr


VECTORIZED = """
try:
    tf.vectorized_map(lambda i: reduce(tf.cast(i, tf.float32)), tf.range(4))
except NotImplementedError as error:
    print("tf.map_fn" in str(error))
"""


@takes_long()
def test_vectorized_maps_are_refused():
    result = run(VECTORIZED).check()
    assert [rank.stdout for rank in result.ranks] == ["True\n"] * 2
