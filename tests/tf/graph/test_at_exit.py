"""Graphs that run while their program ends."""

import pytest

pytest.importorskip("tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(90)

PROGRAM = """
import atexit
import tensorflow as tf
import mpistrat.tensorflow as distribute

strategy = distribute.MirroredStrategy()
# What is registered last runs first: this after all that a first call leaves for the end, but
# before the communicator is closed.
atexit.register(lambda: print("at exit", graph(tf.ones([3])).numpy().tolist(), flush=True))
graph = tf.function(lambda x: strategy.extended.bridge.all_reduce([x])[0])
graph(tf.ones([2]))
"""


@takes_long()
def test_collectives_of_graphs_go_on_until_the_communicator_is_closed():
    result = run_job(["-c", PROGRAM], 2, 60).check()
    for rank in result.ranks:
        assert rank.stdout.splitlines() == ["at exit [2.0, 2.0, 2.0]"], result.output
