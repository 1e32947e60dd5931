"""Collectives that fail, as TensorFlow's MultiWorkerMirroredStrategy has them fail.

After one of them TensorFlow's collectives work no more, so each has a job of its own.
"""

import os
import time
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402 - TensorFlow may be missing
import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.tf.cases import Raised, by_id, raised  # noqa: E402
from helpers.tf.two_processes import theirs  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long  # noqa: E402

pytestmark = [pytest.mark.deadline(90), takes_long()]

JOB_S = 60
PROGRAM = """
import sys
from pathlib import Path
from mpistrat.testing.tasks.importing import load_test_module
load_test_module("failures", Path(sys.argv[1])).fail_alike(sys.argv[2])
"""


def unequal_sums(s):
    return s.reduce("SUM", by_id(s, lambda i: tf.ones([4 - i])), axis=None)


def unequal_gathers(s):
    return s.gather(by_id(s, lambda i: tf.ones([2, i + 1])), axis=0)


def unequal_ranks(s):
    return s.gather(by_id(s, lambda i: tf.ones([2] * (1 + int(i)))), axis=0)


# Of unequal dtypes TensorFlow says InternalError; ours is an InvalidArgumentError there too.
FAILING = {
    "b34 sums": unequal_sums,
    "b34 sums in a graph": lambda s: tf.function(lambda: unequal_sums(s))(),
    "b42 gathers": unequal_gathers,
    "b42 numbers of dimensions": unequal_ranks,
}


def fail_alike(what):
    """Let a call fail under ours, which goes on, and under TensorFlow's. Runs on each rank.

    TensorFlow tells the rank that comes last, which is rank 1 unless rank 0 is slow, and sometimes
    both. One that is not told waits on, and ends with the other.
    """
    call, reference = FAILING[what], theirs()
    with distribute.MultiWorkerMirroredStrategy() as ours:
        mine = raised(lambda: call(ours))
        assert ours.reduce("SUM", by_id(ours), axis=None).numpy() == 1
    assert isinstance(mine, Raised), mine
    print("ours:", mine.kinds[0], flush=True)
    time.sleep(ours.cluster_resolver.task_id)
    want = raised(lambda: call(reference))
    assert isinstance(want, Raised), want
    assert want.kinds[0] in mine.kinds, f"{want} is wanted, not {mine}"
    print("alike:", want.kinds[0], flush=True)
    os._exit(0)


@pytest.mark.parametrize(
    "what",
    [
        "b34 sums",
        pytest.param("b34 sums in a graph", marks=repeats()),
        "b42 gathers",
        pytest.param("b42 numbers of dimensions", marks=repeats()),
    ],
)
def test_the_class_of_the_error(what):
    paths = [str(Path(mpistrat.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {"PYTHONPATH": os.pathsep.join(paths)}
    result = run_job(["-c", PROGRAM, __file__, what], 2, JOB_S, env=env)
    told = [rank.stdout.splitlines() for rank in result.ranks]
    assert [lines[:1] for lines in told] == [["ours: MismatchError"]] * 2, result.output
    assert {*told[0][1:], *told[1][1:]} == {"alike: InvalidArgumentError"}, result.output
