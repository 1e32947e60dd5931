"""Ranks of several nodes connect whatever lies in their memory, which MPICH may publish."""

import pytest

from helpers.slurm.ranks import PYTHON
from mpistrat.testing.sets import takes_long

MPI = "--mpi=pmi2"
# MPICH's address gets a place between values that are still used; zeros it would send in short.
PROGRAM = """
import os
used = [os.urandom(size) for size in range(100, 4000, 16) for _ in range(40)]
del used[::2]
import mpistrat
with mpistrat.MirroredStrategy() as strategy:
    print(strategy.communicator.allreduce(1.0, "sum"), flush=True)
"""


@takes_long()
@pytest.mark.parametrize("nodes", [2, 4])
def test_a_used_memory(slurm, nodes):
    size = f"-n{nodes}"
    started = slurm.srun(
        MPI, "--kill-on-bad-exit=1", f"-N{nodes}", size, PYTHON, "-c", PROGRAM, is_to_succeed=False
    )
    assert not started.returncode, started.stderr
    assert started.stdout == f"{float(nodes)}\n" * nodes
    assert "pmi2" not in started.stderr
