"""Ranks that srun starts know their nodes and each other, in jobs, steps and arrays."""

import json

import pytest

from helpers.slurm.ranks import PYTHON, SHOW, places
from mpistrat.testing.sets import takes_long

MPI = "--mpi=pmi2"


def check_places(found, nodes, ranks_per_node, hosts):
    """Ranks in blocks on the nodes, and a sum over all of them."""
    size = nodes * ranks_per_node
    assert [one["rank"] for one in found] == list(range(size))
    for rank, one in enumerate(found):
        node, local_rank = divmod(rank, ranks_per_node)
        assert (one["size"], one["num_nodes"], one["local_size"]) == (size, nodes, ranks_per_node)
        assert (one["node"], one["local_rank"], one["host"]) == (node, local_rank, hosts[node])
        assert one["sum"] == size * (size - 1) / 2
        assert one["same"]


@takes_long()
@pytest.mark.parametrize(("nodes", "ranks_per_node"), [(1, 1), (1, 2), (2, 2), (4, 1)])
def test_topology(slurm, nodes, ranks_per_node):
    options = (f"--nodes={nodes}", f"--ntasks-per-node={ranks_per_node}")
    found = places(slurm.srun(MPI, *options, *SHOW).stdout)
    check_places(found, nodes, ranks_per_node, slurm.nodes)
    assert [one["role"] for one in found] == [["worker", rank] for rank in range(len(found))]


@pytest.mark.parametrize("nodes", [*(pytest.param(n, marks=takes_long()) for n in (1, 2)), 4])
def test_quickstart(slurm, nodes):
    """The program of the README."""
    started = slurm.srun(MPI, f"-N{nodes}", "-n4", PYTHON, "-m", "mpistrat.demo.quickstart")
    assert started.stdout == "replicas: 4, slope 3.00, error 0.0000\n"


@takes_long()
def test_roles_in_one_ordinary_job(slurm):
    jobs = {"chief": 1, "worker": 3, "ps": 2}
    started = slurm.srun(MPI, "-N2", "--ntasks-per-node=3", *SHOW, json.dumps(jobs))
    roles = [one["role"] for one in places(started.stdout)]
    workers = [["worker", index] for index in range(3)]
    assert roles == [["chief", 0], *workers, ["ps", 0], ["ps", 1]]


@takes_long()
def test_roles_of_another_number_of_ranks(slurm):
    jobs = {"chief": 1, "worker": 3, "ps": 2}
    started = slurm.srun(MPI, "-N2", "-n4", *SHOW, json.dumps(jobs), is_to_succeed=False)
    assert started.returncode
    assert (
        started.stderr.count("are 6 tasks, but the job has 4 ranks; start it with srun -n 6") == 4
    )


@takes_long()
def test_steps_of_a_job(slurm, tmp_path):
    """Steps on parts of the nodes, side by side, and one on nodes that another step uses."""
    show = " ".join(SHOW)
    script = f"""#!/bin/bash
srun {MPI} --exact -N2 -n2 -c1 {show} >first &
srun {MPI} --exact -N2 -n4 -c1 {show} >second &
wait
srun {MPI} -N4 -n4 sleep 60 &
sleep 1
srun {MPI} --overlap -N4 -n4 {show} >third
kill $!
"""
    slurm.sbatch(script, "-N4", "--ntasks-per-node=4", folder=tmp_path).completed()
    first, second, third = (
        places((tmp_path / name).read_text()) for name in ("first", "second", "third")
    )
    check_places(third, 4, 1, slurm.nodes)
    for found, size in ((first, 2), (second, 4)):
        assert [one["size"] for one in found] == [size] * size
        assert {one["num_nodes"] for one in found} == {2}


@takes_long()
def test_arrays(slurm, tmp_path):
    """Tasks of an array are jobs of their own, also side by side on one node."""
    script = f"#!/bin/bash\nsrun {MPI} {' '.join(SHOW)}\n"
    array = slurm.sbatch(script, "--array=0-2", "--nodes=1", "-n2", folder=tmp_path)
    for task in range(3):
        found = places(slurm.job(f"{array.number}_{task}").completed())
        assert [(one["rank"], one["size"], one["sum"]) for one in found] == [(0, 2, 1), (1, 2, 1)]


@takes_long()
def test_a_heterogeneous_job(slurm):
    """MPICH's ranks span the components, as few MPI libraries' do."""
    component = (MPI, "-N1", "-n1")
    started = slurm.srun(*component, *SHOW, ":", MPI, "-N1", "-n2", *SHOW)
    found = places(started.stdout)
    assert [(one["rank"], one["size"], one["node"]) for one in found] == [
        *((0, 3, 0), (1, 3, 1), (2, 3, 1))
    ]


@takes_long()
def test_a_rank_that_fails_ends_the_job(slurm):
    """At once, also where Slurm would let the other ranks wait for it (KillOnBadExit=0)."""
    program = (
        "import mpistrat, time; c = mpistrat.Communicator()\n"
        "if c.rank == 1: raise ValueError('told')\n"
        "c.barrier()"
    )
    started = slurm.srun(MPI, "-N2", "-n2", PYTHON, "-c", program, is_to_succeed=False)
    assert started.returncode
    assert "ValueError: told" in started.stderr


@takes_long()
@pytest.mark.parametrize("option", ["--gpus-per-node=4", "--gpus-per-task=2"])
def test_the_gpus_of_each_rank(slurm, option):
    """In a full view, and where Slurm has bound them."""
    found = places(slurm.srun(MPI, "-N1", "-n2", option, *SHOW).stdout)
    assert [one["gpus"] for one in found] == [2, 2]
