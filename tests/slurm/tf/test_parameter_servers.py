"""TensorFlow's parameter servers on two nodes of an ordinary Slurm job."""

import pytest

from helpers.slurm.ranks import PYTHON
from mpistrat.testing.sets import takes_long

PROGRAM = """
import tensorflow as tf

import mpistrat.tensorflow as distribute

jobs = {"chief": 1, "worker": 2, "ps": 1}
resolver = distribute.cluster_resolver.SlurmClusterResolver(jobs)
if resolver.task_type == "chief":
    with distribute.ParameterServerStrategy(resolver) as strategy:
        coordinator = distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            total = tf.Variable(0.0)

        @tf.function
        def step():
            total.assign_add(2.0)
            return total.read_value()

        for _ in range(10):
            coordinator.schedule(step)
        coordinator.join()
        print("total", total.numpy(), strategy.cluster_resolver is resolver, flush=True)
else:
    distribute.Server(resolver).join()
"""


@takes_long()
@pytest.mark.deadline(150)
def test_on_two_nodes(slurm):
    pytest.importorskip("tensorflow")
    options = ("--mpi=pmi2", "--kill-on-bad-exit=1", "-N2", "--ntasks-per-node=2")
    started = slurm.srun(*options, PYTHON, "-c", PROGRAM, timeout_s=120)
    assert started.stdout == "total 20.0 True\n"
