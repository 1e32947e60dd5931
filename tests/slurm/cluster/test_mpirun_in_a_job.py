"""mpirun in a batch script starts ranks on all nodes of the job, without ssh."""

import pytest

from helpers.slurm.ranks import SHOW, bin_folder, places
from mpistrat.testing.sets import takes_long

MPIRUN = bin_folder() / "mpirun"
# Open MPI wants to be told that root may, and that ranks may share cores.
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(autouse=True)
def _has_mpirun():
    if not MPIRUN.exists():
        pytest.skip(f"no {MPIRUN}; pip install mpich")


@takes_long()
@pytest.mark.parametrize(("nodes", "ranks_per_node"), [(1, 3), (2, 1), (2, 2)])
def test_topology(slurm, tmp_path, nodes, ranks_per_node):
    size = nodes * ranks_per_node
    script = f"#!/bin/bash\n{MPIRUN} -n {size} {' '.join(SHOW)}\n"
    options = (f"--nodes={nodes}", f"--ntasks-per-node={ranks_per_node}")
    job = slurm.sbatch(script, *options, folder=tmp_path, environment=ROOT)
    found = places(job.completed())
    assert [(one["rank"], one["size"], one["num_nodes"]) for one in found] == [
        (rank, size, nodes) for rank in range(size)
    ]
    hosts = [slurm.nodes[rank // ranks_per_node] for rank in range(size)]
    assert [one["host"] for one in found] == hosts
    assert {one["sum"] for one in found} == {size * (size - 1) / 2}


@takes_long()
def test_nodes_without_ranks_are_named(slurm, tmp_path):
    script = f"#!/bin/bash\n{MPIRUN} -n 1 {' '.join(SHOW)}\n"
    output = slurm.sbatch(script, "--nodes=3", folder=tmp_path, environment=ROOT).completed()
    assert "nodes of this Slurm job without a rank: 2 of 3 (n1, n2); start more" in output
