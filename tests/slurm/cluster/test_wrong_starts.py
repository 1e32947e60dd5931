"""Every rank of a wrong start is told the cause and what to type, in seconds."""

import time

import pytest

from helpers.slurm.ranks import PYTHON, SHOW, bin_folder, places
from mpistrat.testing.sets import takes_long

AT_ONCE_S = 20


def refused(started, ranks, text):
    """Every rank says `text`, and nobody ran."""
    assert started.returncode
    assert started.stderr.count(text) == ranks, started.stderr
    assert not places(started.stdout)
    return started.stderr


@takes_long()
@pytest.mark.parametrize(("nodes", "ranks"), [(1, 2), (2, 4)])
def test_plain_srun(slurm, nodes, ranks):
    begin = time.monotonic()
    started = slurm.srun(f"-N{nodes}", f"-n{ranks}", *SHOW, is_to_succeed=False)
    errors = refused(
        started, ranks, f"announced {ranks} ranks (SLURM_STEP_NUM_TASKS), but MPI sees 1"
    )
    program = "-m helpers.slurm.show_topology`"
    assert errors.count(f"srun --mpi=pmi2 -N {nodes} -n {ranks} ") == ranks
    assert errors.count(program) == ranks
    assert errors.count("`mpistrat doctor`") == ranks
    assert time.monotonic() - begin < AT_ONCE_S


@takes_long()
def test_the_advice_works(slurm):
    """The command line of the message, typed as it is."""
    errors = slurm.srun("-N2", "-n2", *SHOW, is_to_succeed=False).stderr
    words = errors.partition("start it by `")[2].partition("`")[0].split()
    words[words.index(PYTHON.rpartition("/")[2])] = PYTHON
    assert words[0] == "srun"
    assert len(places(slurm.srun(*words[1:]).stdout)) == 2


@takes_long()
def test_alone_on_purpose(slurm):
    started = slurm.srun("-n2", *SHOW, environment={"MPISTRAT_ALLOW_SINGLETON": "1"})
    assert [one["size"] for one in places(started.stdout)] == [1, 1]


@takes_long()
@pytest.mark.parametrize("mpi", ["pmi2", "none"])
def test_half_set_variables(slurm, mpi):
    """On one rank only; but all of them have to say it, since the others would wait."""
    script = f"[ $SLURM_PROCID = 0 ] || export SLURM_PROCID=; exec {' '.join(SHOW)}"
    started = slurm.srun(f"--mpi={mpi}", "-N2", "-n2", "bash", "-c", script, is_to_succeed=False)
    if mpi == "pmi2":
        text = "rank 1 is in a Slurm step, but has SLURM_PROCID=''; start all ranks by one srun"
        refused(started, 2, text)
    else:
        assert started.returncode
        assert not places(started.stdout)


def test_a_rank_that_ends_before_mpi_starts(slurm):
    """The others would wait for it in MPI_Init, without end."""
    program = (
        "import os, mpistrat\n"
        "if os.environ['SLURM_PROCID'] == '1': raise SystemExit(0)\n"
        "mpistrat.MirroredStrategy()"
    )
    started = slurm.srun("--mpi=pmi2", "-n2", PYTHON, "-c", program, is_to_succeed=False)
    assert started.returncode
    assert "rank 1" in started.stderr
    assert "make the first strategy on all ranks, or on none" in started.stderr


@takes_long()
def test_a_process_of_a_batch_script_runs_alone_and_says_so(slurm, tmp_path):
    script = f"#!/bin/bash\n{' '.join(SHOW)}\n"
    output = slurm.sbatch(script, "-N2", "-n4", folder=tmp_path).completed()
    assert [one["size"] for one in places(output)] == [1]
    assert "this Slurm allocation has 4 tasks" in output
    assert "`srun -n 4`" in output


@takes_long()
def test_the_shell_of_salloc(slurm):
    """As a notebook or an editor that is started there."""
    started = slurm.run(["salloc", "-n4", *SHOW], timeout_s=60)
    assert [one["size"] for one in places(started.stdout)] == [1]
    assert "this Slurm allocation has 4 tasks" in started.stderr


@takes_long()
def test_mpirun_in_a_step(slurm):
    """A shell with `srun --pty` is a step of one task; its mpirun has ranks of its own."""
    mpirun = bin_folder() / "mpirun"
    if not mpirun.exists():
        pytest.skip(f"no {mpirun}; pip install mpich")
    started = slurm.srun("-n1", "--overlap", str(mpirun), "-launcher", "fork", "-n", "2", *SHOW)
    assert [one["size"] for one in places(started.stdout)] == [2, 2]
