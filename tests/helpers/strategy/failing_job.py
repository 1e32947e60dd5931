"""Run a program that makes a strategy and then fails, and check how its job ends."""

from __future__ import annotations

import os
from pathlib import Path

import mpistrat
from mpistrat.testing.launcher import JobResult, run_job

__all__ = ["SOON_S", "START_S", "check_failed", "run"]

SOON_S = 10.0
"""Seconds within which a job has to end."""

START_S = 5.0
"""Seconds to launch Python on a busy machine."""

_HEADER = """
import os, signal, sys, threading, time
import numpy as np
import mpistrat as ms
from mpistrat.testing.launching.rank import rank_from_environment
{before}
strategy = ms.MirroredStrategy()
rank, size = strategy.extended.communicator.rank, strategy.extended.communicator.size
strategy.extended.communicator.barrier()
start = time.monotonic()

def replica():
    return ms.get_replica_context()
"""
# Written by each rank that got this far; how long it took the ranks to see the error.
_FOOTER = """
sys.excepthook = lambda *error, hook=sys.excepthook: (
    print(f"saw it after {time.monotonic() - start:.1f} s", file=sys.stderr), hook(*error))
"""


def run(
    body: str, ranks: int = 3, before: str = "", timeout_s: float = 40.0, **env: str
) -> JobResult:
    """Run a program on all ranks.

    Parameters
    ----------
    body
        Follows the making of ``strategy``; knows ``rank``, ``size`` and ``replica()``.
    ranks
        Number of ranks.
    before
        Precedes the making of the strategy.
    timeout_s
        Deadline of the job.
    env
        Environment variables.
    """
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    program = _HEADER.format(before=before) + _FOOTER + body
    return run_job(["-c", program], ranks, timeout_s, env={"PYTHONPATH": path, **env})


def check_failed(result: JobResult, *words: str, within_s: float = SOON_S) -> None:
    """Check that the job ended by itself with an error, and that each rank shows all `words`."""
    assert not result.timed_out, result.output
    assert result.returncode != 0, result.output
    assert result.duration_s < within_s + START_S, result.output
    for i, output in enumerate(result.ranks):
        for word in words:
            assert word in output.stderr, f"rank {i} does not say {word!r}\n{result.output}"
