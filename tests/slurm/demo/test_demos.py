"""The README's programs, started by srun on several nodes."""

import re

import pytest

from helpers.slurm.ranks import PYTHON
from mpistrat.testing.sets import takes_long

pytestmark = [pytest.mark.deadline(180), takes_long()]

MPI = "--mpi=pmi2"


def demo(slurm, nodes, ranks, *program):
    """Run a module of the demos on ranks of some nodes, and return what it prints."""
    options = (MPI, "--kill-on-bad-exit=1", f"-N{nodes}", f"-n{ranks}")
    return slurm.srun(*options, PYTHON, "-m", *program, timeout_s=150).stdout


@pytest.mark.parametrize("nodes", [2, pytest.param(4, marks=takes_long())])
def test_keras(slurm, nodes):
    """TensorFlow is imported before MPI starts, which MPICH's addresses have to stand."""
    pytest.importorskip("tensorflow")
    printed = demo(slurm, nodes, nodes, "mpistrat.demo.keras_digits")
    found = re.search(rf"{nodes} replicas, test accuracy ([\d.]+)%", printed)
    assert found is not None, printed
    assert float(found[1]) > 85


@pytest.mark.parametrize("nodes", [2, 4])
def test_parameter_servers(slurm, nodes):
    printed = demo(slurm, nodes, 5, "mpistrat.demo.words", "800")
    (first, last), *_ = re.findall(r"loss ([\d.]+) at first, ([\d.]+) in the end", printed)
    assert float(first) > 0.65
    assert float(last) < 0.6


def test_a_network_of_arrays(slurm):
    printed = demo(slurm, 2, 2, "mpistrat.demo")
    assert "all replicas hold the same bits: 2 x sha256" in printed
