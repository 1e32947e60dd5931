"""An evaluator beside TensorFlow's parameter servers: real programs, one text for all roles."""

import os
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import mpistrat
from mpistrat.testing.launcher import run_job
from mpistrat.testing.placement import repeats, takes_long

pytestmark = pytest.mark.deadline(120)

RANKS = 4  # a chief, a worker, a parameter server, an evaluator
PROGRAM = """
import os, sys, time
import keras
import numpy as np
import tensorflow as tf
import mpistrat.tensorflow as distribute
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.tensorflow.coordinator import ClusterCoordinator, SidecarEvaluator

folder, way = sys.argv[1:]
resolver = MPIClusterResolver(num_ps=1, num_evaluators=1)
x = np.ones((4, 3), np.float32)

def new_model():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model

if resolver.task_type == "evaluator":
    server = distribute.Server(resolver)
    if way == "join":
        server.join()
        sys.exit(0)
    model = new_model()

    def evaluate(path):
        open(f"{folder}-{os.path.basename(path)}", "w").close()  # the chief waits for it
        if way == "fails":
            raise RuntimeError("the evaluator said so")
        return model.evaluate(x, np.zeros((4, 1)), verbose=0)

    checkpoint = tf.train.Checkpoint(model=model)
    evaluator = SidecarEvaluator(server, checkpoint, folder, evaluate, 2 if way == "two" else None)
    results = evaluator.start()
    before = list(results)
    assert evaluator.start() == evaluator.results == before  # there is nothing new
    print(*[f"{os.path.basename(path)}={value:g}" for path, value in results])
    sys.exit(0)
if resolver.task_type != "chief":
    server = distribute.Server(resolver)
    if way == "wrong":
        SidecarEvaluator(server, tf.train.Checkpoint(), folder, print)
    server.join()
    sys.exit(0)
strategy = distribute.ParameterServerStrategy(resolver)
coordinator = ClusterCoordinator(strategy)
with strategy.scope():
    model = new_model()
    more = tf.Variable(1.0)
weight = model.trainable_variables[0]
checkpoint = tf.train.Checkpoint(model=model, more=more)
manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)

@tf.function
def step(value):
    weight.assign(tf.fill((3, 1), value))
    return tf.reduce_sum(model(x))

for number in range(1, 4):
    assert coordinator.schedule(step, (tf.constant(float(number)),)).fetch() == 12.0 * number
    seen = f"{folder}-{os.path.basename(manager.save())}"
    end = time.monotonic() + 30
    waits = way == "all" or number <= {"two": 2, "fails": 1}.get(way, 0)
    while waits and not os.path.exists(seen) and time.monotonic() < end:
        coordinator.schedule(step, (tf.constant(float(number)),)).fetch()
if way == "chief":
    raise RuntimeError("the chief said so")
if way == "fails":
    for _ in range(300):
        time.sleep(0.1)
        coordinator.schedule(step, (tf.constant(1.0),)).fetch()
coordinator.schedule(step, (tf.constant(4.0),))
coordinator.join()
manager.save()  # at the very end, and evaluated too
strategy.close()
print("trained")
"""


def run(tmp_path, way):
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    arguments = ["-c", PROGRAM, str(tmp_path / "kept"), way]
    result = run_job(arguments, RANKS, 100.0, env={"PYTHONPATH": path})
    assert not result.timed_out, result.output
    return result


@takes_long()
def test_b80_checkpoints_are_evaluated_while_others_train(tmp_path):
    result = run(tmp_path, "all").check()
    # The mean of the squares of three times the weight.
    assert result.ranks[3].stdout == "ckpt-1=9 ckpt-2=36 ckpt-3=81 ckpt-4=144\n", result.output
    assert result.ranks[0].stdout == "trained\n"


@takes_long()
@pytest.mark.parametrize("way", ["two", pytest.param("join", marks=repeats())])
def test_an_evaluator_that_has_enough_waits_for_the_end(tmp_path, way):
    result = run(tmp_path, way).check()
    assert result.ranks[3].stdout == ("ckpt-1=9 ckpt-2=36\n" if way == "two" else "")
    assert result.ranks[0].stdout == "trained\n"


@takes_long()
@pytest.mark.parametrize("way", [pytest.param("chief", marks=repeats()), "fails"])
def test_an_error_ends_the_others_too(tmp_path, way):
    result = run(tmp_path, way)
    rank, other, words = (0, 3, "the chief") if way == "chief" else (3, 0, "the evaluator")
    assert result.returncode != 0
    assert f"{words} said so" in result.ranks[rank].stderr, result.output
    assert "cannot go on without" in result.ranks[other].stderr, result.output


@pytest.mark.parametrize("way", [pytest.param("wrong", marks=takes_long())])
def test_only_an_evaluator_evaluates(tmp_path, way):
    result = run(tmp_path, way)
    assert result.returncode != 0
    words = r"SidecarEvaluator of worker 0 (rank 1/4); expected the Server of a rank whose"
    assert words in result.ranks[1].stderr, result.output
