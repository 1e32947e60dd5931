"""TensorFlow's threads: a rank has as many as its part of the cores, unless the program says."""

import os
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import mpistrat
from mpistrat.testing.launcher import run_job
from mpistrat.testing.placement import repeats, takes_long

CORES = len(os.sched_getaffinity(0))

PROGRAM = """
import sys
import mpistrat.tensorflow as distribute
import tensorflow as tf

pools = tf.config.threading
if "set" in sys.argv:
    pools.set_intra_op_parallelism_threads(5)
if "used" in sys.argv:
    tf.constant(1.0) + 1
strategy = distribute.MirroredStrategy()
print(pools.get_intra_op_parallelism_threads(), pools.get_inter_op_parallelism_threads())
from tensorflow.python.eager import context
print(int(context.context().config.experimental.disable_thread_spinning))
again = distribute.MirroredStrategy()
"""


def threads_of(ranks, how="", **settings):
    """Return of each rank the sizes of its pools and whether idle threads sleep at once.

    With all that rank 0 logs.
    """
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "MPISTRAT_LOG": "INFO", **settings}
    result = run_job(["-c", PROGRAM, how], ranks, 60, environment).check()
    sizes = [tuple(map(int, rank.stdout.split())) for rank in result.ranks]
    lines = [
        line for line in result.ranks[0].stderr.splitlines() if "tensorflow.thread_pools" in line
    ]
    return sizes, lines


@pytest.mark.deadline(120)
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=repeats())])
def test_ranks_share_the_cores(ranks):
    sizes, lines = threads_of(ranks)
    share = max(1, CORES // ranks)
    assert sizes == [(share, max(2, share), int(share == 1))] * ranks
    (line,) = lines
    assert f"{ranks} ranks on " in line
    assert f"computes with {share} threads" in line


@pytest.mark.deadline(120)
@takes_long()
def test_what_the_program_and_the_environment_say_stays():
    sizes, lines = threads_of(2, "set", TF_NUM_INTEROP_THREADS="3")
    assert sizes == [(5, 0, 0)] * 2  # which TensorFlow reads as the environment's
    assert not lines


@pytest.mark.deadline(120)
def test_once_tensorflow_is_in_use_a_line_says_what_to_do():
    sizes, lines = threads_of(2, "used", MPISTRAT_LOG="WARNING")
    assert sizes == [(0, 0, 0)] * 2
    (line,) = lines
    assert "make the strategy first" in line
