"""Replicas and the thread that runs them where CuPy gives each thread a default stream."""

import os
import sys

import pytest

from helpers.gpu.devices import needs_gpus
from mpistrat.testing.launcher import run_job

_PROGRAM = """
import cupy
import numpy as np
import mpistrat
from helpers.gpu.ranks import fill_late

assert cupy.cuda.get_current_stream().ptr == cupy.cuda.Stream.ptds.ptr
with mpistrat.MirroredStrategy(["GPU:0", "GPU:1"]) as strategy:
    with strategy.scope():
        v = mpistrat.Variable(np.zeros(5, np.float32))

    def step():
        found = v.value() + 0
        fill_late(v.value(), 9)
        return found

    for value in (1, 2):
        for index, copy in enumerate(strategy.experimental_local_results(v)):
            with cupy.cuda.Device(index):
                fill_late(copy.value(), value)
        found = strategy.experimental_local_results(strategy.run(step))
        for index, one in enumerate(found):
            with cupy.cuda.Device(index):
                print("in replicas", value, one.tolist())
        for index, copy in enumerate(strategy.experimental_local_results(v)):
            with cupy.cuda.Device(index):
                print("after them", value, (copy.value() + 0).tolist())
"""


@pytest.mark.deadline(60)
def test_the_order_of_work_in_several_threads():
    needs_gpus(2)
    env = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1",
    }
    result = run_job(["-c", _PROGRAM], 1, timeout_s=50, env=env)
    assert result.returncode == 0, result.output
    lines = result.ranks[0].stdout.splitlines()
    for value in (1, 2):
        assert lines.count(f"in replicas {value} {[float(value)] * 5}") == 2, lines
        assert lines.count(f"after them {value} {[9.0] * 5}") == 2, lines
