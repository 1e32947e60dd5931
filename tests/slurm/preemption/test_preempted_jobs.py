"""Jobs that Slurm signals save, ask for another run, and end with the same bits."""

import json
import re

import pytest

from helpers.preemption.training import STEPS
from helpers.slurm.submitting import render
from mpistrat.system.waiting import wait_until
from mpistrat.testing.placement import slower
from mpistrat.testing.sets import repeats, takes_long

pytestmark = [pytest.mark.deadline(200), takes_long()]
TRAINING, FIT = "helpers.preemption.training", "helpers.preemption.fit"
TWO_NODES = ("--strategy", "multi_worker", "--nodes", "2", "--tasks-per-node", "1")
SLOW = {"pause_s": 0.1, "tells": 4}


def submitted(slurm, folder, module, options, *changes):
    """Submit a training of two ranks on two nodes, by the script that the template gives."""
    program = ("-m", module, str(folder / "ckpt"), json.dumps(options))
    script = render(slurm, folder, *TWO_NODES, *changes, program=program)
    return slurm.sbatch(script, folder=folder)


def wait_for(job, text):
    assert wait_until(lambda: text in job.output(), 60 * slower(), 0.05), job.output()


def digests(output):
    """Return what ranks printed at their end."""
    return re.findall(r"(?:to 18|\[[\d, ]+\]): (\w{16})", output)


@pytest.fixture
def folders(tmp_path):
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    return tmp_path / "whole", tmp_path / "stopped"


def test_a_job_that_is_signalled_goes_on_and_ends_with_the_same_bits(slurm, folders):
    whole = submitted(slurm, folders[0], TRAINING, {})
    job = submitted(slurm, folders[1], TRAINING, SLOW)
    wait_for(job, "in step 4")
    job.signal("USR1")  # to the steps, as --signal=USR1@300 does
    output = job.completed(120)
    assert "SIGUSR1 came to rank" in output
    assert re.search(r"saved .*ckpt-1", output)
    assert f"saved; asking for another run of job {job.number}" in output
    assert job.restarts() == 1
    assert re.search(rf"from ([5-9]|1[0-7]) to {STEPS}:", output)
    assert len(set(digests(output + whole.completed(60)))) == 1
    assert list(folders[1].glob(".mpistrat*")) == []


def test_a_fit_that_is_signalled_goes_on_and_ends_with_the_same_bits(slurm, folders):
    whole = submitted(slurm, folders[0], FIT, {})
    job = submitted(slurm, folders[1], FIT, {"strikes": [(1, 1, 1, "SIGUSR1")]})
    # In its second run the strike is behind it.
    output = job.completed(180)
    assert job.restarts() == 1
    assert "fit goes on from" in output
    assert len(digests(output)) == 2
    assert len(set(digests(output + whole.completed(120)))) == 1


def test_a_rank_that_is_stuck_does_not_keep_the_job_from_being_requeued(slurm, folders):
    stuck = {"stuck": (4, True), "strikes": [], "handler": {"save_every_steps": 1, "lead_s": 5}}
    job = submitted(slurm, folders[1], TRAINING, stuck)
    wait_for(job, "stuck in step 4")
    job.signal("USR1")
    wait_for(job, "asking for another run")
    output = job.output()
    assert "has not stopped in time" in output
    assert "training.py" in output
    assert wait_until(lambda: job.state() == "PENDING" or job.restarts(), 30, 0.1)


@repeats()
@pytest.mark.deadline(300)
def test_the_time_limit_signals(slurm, folders):
    """Slurm sends --signal by itself; it may come up to a minute early."""
    slow = {"pause_s": 10, "tells": 0}
    options = ("--time", "2", "--signal", "USR1@60")
    job = submitted(slurm, folders[1], TRAINING, slow, *options)
    assert wait_until(lambda: "asking for another run" in job.output(), 150, 0.2), job.output()
    assert "SIGUSR1 came to rank" in job.output()
    assert (folders[1] / "ckpt" / "ckpt-1").is_dir()
