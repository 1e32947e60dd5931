"""An evaluator beside TensorFlow's parameter servers: what it evaluates, and what ends it."""

import os
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat  # noqa: E402 - TensorFlow may be missing
import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.mistakes import refused  # noqa: E402
from mpistrat.cluster_resolver import MPIClusterResolver  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.tensorflow.coordinator import ClusterCoordinator, SidecarEvaluator  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long  # noqa: E402

pytestmark = takes_long()

RANKS = 4  # a chief, a worker, a parameter server, an evaluator
FOUR = pytest.mark.mpi(ranks=RANKS, timeout_s=90)
X = np.ones((4, 3), np.float32)


def new_model():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    return model


def seen(path):
    """Return the file that the evaluator makes once it has a checkpoint."""
    return Path(f"{path}-was-seen")


def train(strategy, folder, waits):
    """Save a checkpoint after each of four steps; of the first `waits`, until it was seen."""
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        model, more = new_model(), tf.Variable(1.0)
    weight = model.trainable_variables[0]
    checkpoint = tf.train.Checkpoint(model=model, more=more)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)

    @tf.function
    def step(value):
        weight.assign(tf.fill((3, 1), value))
        return tf.reduce_sum(model(X))

    for number in range(1, 4):
        assert coordinator.schedule(step, (tf.constant(float(number)),)).fetch() == 12.0 * number
        path, end = seen(manager.save()), time.monotonic() + 30
        while number <= waits and not path.exists() and time.monotonic() < end:
            coordinator.schedule(step, (tf.constant(float(number)),)).fetch()
    coordinator.schedule(step, (tf.constant(4.0),))
    coordinator.join()
    manager.save()  # at the very end, and evaluated too


def evaluated(server, folder, limit):
    """Return the names of the checkpoints that the evaluator found, and their losses."""
    model = new_model()

    def evaluate(path):
        seen(path).touch()
        return model.evaluate(X, np.zeros((4, 1)), verbose=0)

    evaluator = SidecarEvaluator(server, tf.train.Checkpoint(model=model), folder, evaluate, limit)
    results = evaluator.start()
    before = list(results)
    assert evaluator.start() == evaluator.results == before  # there is nothing new
    return {Path(path).name: loss for path, loss in results}


def found_by(evaluator, chief, worker=lambda _: None):
    """Run what each role does; return to all ranks what the evaluator returns."""
    from mpi4py import MPI

    resolver, found = MPIClusterResolver(num_ps=1, num_evaluators=1), None
    with tempfile.TemporaryDirectory() as own:
        folder = MPI.COMM_WORLD.bcast(f"{own}/kept")
        if resolver.task_type == "chief":
            with distribute.ParameterServerStrategy(resolver) as strategy:
                chief(strategy, folder)
        else:
            server = distribute.Server(resolver)
            if resolver.task_type == "worker":
                worker(server)
            is_evaluator = resolver.task_type == "evaluator"
            found = evaluator(server, folder) if is_evaluator else server.join()
        return MPI.COMM_WORLD.bcast(found, root=RANKS - 1)  # before the chief removes its folder


@FOUR
def test_b80_checkpoints_are_evaluated_while_others_train():
    found = found_by(partial(evaluated, limit=None), partial(train, waits=3))
    # The mean of the squares of three times the weight.
    assert found == {"ckpt-1": 9, "ckpt-2": 36, "ckpt-3": 81, "ckpt-4": 144}


@FOUR
@pytest.mark.parametrize("limit", [2, pytest.param(0, marks=repeats())])
def test_an_evaluator_that_has_enough_waits_for_the_end(limit):
    def evaluator(server, folder):
        found = evaluated(server, folder, limit) if limit else server.join()
        return found, Path(f"{folder}/ckpt-4.index").exists()

    found, is_over = found_by(evaluator, partial(train, waits=limit))
    assert found == ({"ckpt-1": 9, "ckpt-2": 36} if limit else None)
    assert is_over


@FOUR
def test_only_an_evaluator_evaluates():
    def worker(server):
        text = r"SidecarEvaluator of worker 0 \(rank 1/4\); expected the Server of a rank whose"
        with refused(UsageError, text):
            SidecarEvaluator(server, tf.train.Checkpoint(), "kept", print)

    found_by(lambda server, _: server.join(), lambda *_: None, worker)


PROGRAM = """
import sys, time
import tensorflow as tf
import mpistrat.tensorflow as distribute
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.tensorflow.coordinator import ClusterCoordinator, SidecarEvaluator

folder, who = sys.argv[1:]
resolver = MPIClusterResolver(num_ps=1, num_evaluators=1)

def evaluate(path):
    if who == "evaluator":
        raise RuntimeError("the evaluator said so")

if resolver.task_type == "chief":
    strategy = distribute.ParameterServerStrategy(resolver)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(1.0)
    tf.train.CheckpointManager(tf.train.Checkpoint(total=total), folder, max_to_keep=1).save()
    if who == "chief":
        raise RuntimeError("the chief said so")
    add = tf.function(lambda: total.assign_add(1.0))
    for _ in range(300):
        time.sleep(0.1)
        coordinator.schedule(add).fetch()
server = distribute.Server(resolver)
if resolver.task_type == "evaluator":
    checkpoint = tf.train.Checkpoint(total=tf.Variable(0.0))
    SidecarEvaluator(server, checkpoint, folder, evaluate).start()
else:
    server.join()
"""


@pytest.mark.deadline(120)
@pytest.mark.parametrize("who", [pytest.param("chief", marks=repeats()), "evaluator"])
def test_an_error_ends_the_others_too(tmp_path, who):
    """A real program, whose exit code and last words are looked at from outside."""
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    arguments = ["-c", PROGRAM, str(tmp_path / "kept"), who]
    result = run_job(arguments, RANKS, 100.0, env={"PYTHONPATH": path})
    assert not result.timed_out, result.output
    rank, other = (0, 3) if who == "chief" else (3, 0)
    assert result.returncode != 0
    assert f"the {who} said so" in result.ranks[rank].stderr, result.output
    assert "cannot go on without" in result.ranks[other].stderr, result.output
