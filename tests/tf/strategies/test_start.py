"""The start of TensorFlow on ranks: its thread pools share the cores, and rank 0 alone prints."""

import functools
import os
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

import mpistrat
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.deadline(120)

CORES = len(os.sched_getaffinity(0))

PROGRAM = """
import os, sys
from mpi4py import MPI

how, verbose = sys.argv[1 + MPI.COMM_WORLD.rank], sys.argv[-1]
if how == "set":
    os.environ["TF_NUM_INTEROP_THREADS"] = "3"
import mpistrat.tensorflow as distribute
import keras, numpy as np
import tensorflow as tf

pools = tf.config.threading
if how == "set":
    pools.set_intra_op_parallelism_threads(5)
if how == "used":
    tf.constant(1.0) + 1
strategy = distribute.MirroredStrategy(["CPU:0"])
sizes = pools.get_intra_op_parallelism_threads(), pools.get_inter_op_parallelism_threads()
from tensorflow.python.eager import context
is_asleep = context.context().config.experimental.disable_thread_spinning
print("POOLS", *sizes, int(is_asleep), file=sys.stderr)
again = distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
verbose = verbose if verbose == "auto" else int(verbose)
model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=verbose)
"""


def written(hows, verbose, **settings):
    """Return what ranks write, of which number i has done ``hows[i]`` before it has a strategy."""
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "MPISTRAT_LOG": "INFO", **settings}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
        return run_job(["-c", PROGRAM, *hows, verbose], len(hows), 60, environment).check().ranks


@functools.cache
def of_a_program_that_says_nothing(ranks=2):
    return written(["nothing"] * ranks, "auto")


@functools.cache
def of_a_program_that_wants_all():
    asked = {"TF_CPP_MIN_LOG_LEVEL": "0", "MPISTRAT_LOG_RANKS": "all"}
    return written(["used", "set"], "1", **asked)


def lines_of(rank, what):
    return [line for line in rank.stderr.splitlines() if what in line]


def pools_of(rank):
    """Return the sizes of a rank's pools, and whether idle threads sleep at once."""
    (line,) = lines_of(rank, "POOLS")
    return tuple(map(int, line.split()[1:]))


@takes_long()
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=repeats())])
def test_ranks_share_the_cores(ranks):
    found = of_a_program_that_says_nothing(ranks)
    share = max(1, CORES // ranks)
    assert [pools_of(one) for one in found] == [(share, max(2, share), int(share == 1))] * ranks
    (line,) = lines_of(found[0], "tensorflow.thread_pools")
    assert f"{ranks} ranks on " in line
    assert f"computes with {share} threads" in line


@takes_long()
def test_what_the_program_and_the_environment_say_stays():
    _, rank = of_a_program_that_wants_all()
    assert pools_of(rank) == (5, 0, 0)  # which TensorFlow reads as the environment's
    assert not lines_of(rank, "tensorflow.thread_pools")


@takes_long()
def test_once_tensorflow_is_in_use_a_line_says_what_to_do():
    rank, _ = of_a_program_that_wants_all()
    assert pools_of(rank) == (0, 0, 0)
    (line,) = lines_of(rank, "tensorflow.thread_pools")
    assert "WARNING" in line
    assert "make the strategy first" in line


def is_heard(rank):
    return "oneDNN" in rank.stderr or "cpu_feature_guard" in rank.stderr


@takes_long()
def test_other_ranks_start_in_silence_and_a_line_says_how_to_hear_them():
    first, other = of_a_program_that_says_nothing()
    assert is_heard(first)
    told = "to see the other ranks': verbose=1, TF_CPP_MIN_LOG_LEVEL=0, MPISTRAT_LOG_RANKS=all"
    assert first.stderr.count(told) == 1
    assert first.stdout
    assert not is_heard(other)
    assert "to see the other" not in other.stderr
    assert other.stdout == ""


@takes_long()
def test_who_asks_hears_all_ranks():
    for rank in of_a_program_that_wants_all():
        assert is_heard(rank)
        assert "to see the other" not in rank.stderr
        assert rank.stdout
