"""Programs that Horovod lets abort, hang or lose: the lint names each, and each ends so."""

import importlib.util

import pytest

from mpistrat.doctor.lint.program import Program
from mpistrat.doctor.lint.rules import RULES
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

START = "import tensorflow as tf\nimport horovod.tensorflow as hvd\nhvd.init()\n"
STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "6"}
PROGRAMS = {
    "second start": (
        "start-and-end",
        START + "hvd.shutdown()\nprint('so far', flush=True)\nhvd.init()\n",
    ),
    "mpi4py after Horovod": (
        "start-and-end",
        START + "from mpi4py import MPI\nhvd.shutdown()\nprint('so far', flush=True)\n"
        "MPI.COMM_WORLD.Barrier()\n",
    ),
    "a result that one rank uses": (
        "unused-results",
        START + "import time\n@tf.function\ndef step(x):\n    total = hvd.allreduce(x)\n"
        "    if hvd.rank() == 0:\n        tf.print(total)\n    return x\n"
        "print('so far', flush=True)\nstep(tf.ones(1))\ntime.sleep(15 * hvd.rank())\n",
    ),
    "elastic": (
        "elastic",
        START + "import os\nstate = hvd.elastic.TensorFlowState([tf.Variable(1.0)], step=0)\n"
        "@hvd.elastic.run\ndef train(state):\n    print('so far', flush=True)\n"
        "    hvd.allreduce(tf.ones(1), name='both')\n"
        "    if hvd.rank() == 1:\n        os.kill(os.getpid(), 9)\n"
        "    hvd.allreduce(tf.ones(1), name='alone')\ntrain(state)\n",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_lint_names_it(name):
    rule, text = PROGRAMS[name]
    program = Program("p.py", text, {})
    assert [one.name for one in RULES for _ in one.find(program)] == [rule]


@takes_long()
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_ends_badly(name):
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None:  # a folder of tests has its name, too
        pytest.skip("Horovod is not installed; mpistrat horovod build installs it")
    result = run_job(["-c", PROGRAMS[name][1]], 2, env=STALLS)
    assert "so far" in result.output  # it has come so far
    assert result.returncode != 0, result.output
