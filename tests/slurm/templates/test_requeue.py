"""A job whose program asks for it is started again, once; a cancelled one is not."""

import re
import sys
import time
from pathlib import Path

import pytest

from helpers.slurm.scripts import of
from helpers.slurm.submitting import job_of, render, submit
from mpistrat.sites.rendering.launch import Mpi
from mpistrat.sites.rendering.script import Here
from mpistrat.system.waiting import wait_until
from mpistrat.testing.sets import takes_long

pytestmark = [pytest.mark.deadline(150), takes_long()]

# Stands in for a program with a PreemptionHandler: its first run is told to save, its second ends.
ONCE_MORE = """
import os, pathlib
run = os.environ.get("SLURM_RESTART_COUNT", "0")
os.write(1, f"run {run}\\n".encode())  # a line at once: ranks share the file
outcome = pathlib.Path(os.environ["MPISTRAT_OUTCOME_FILE"])
assert not outcome.exists()
outcome.write_text("REQUEUE" if run == "0" else "DONE")
"""
# The same, but told by a signal, of which it says when it can take it.
TOLD = """
import os, pathlib, signal, sys, time
told = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, frame: told.append(number))
run = os.environ.get("SLURM_RESTART_COUNT", "0")
os.write(1, f"run {run}\\n".encode())  # a line at once: ranks share the file
if run != "0":
    sys.exit(0)
end = time.monotonic() + 60
while not told and time.monotonic() < end:
    time.sleep(0.05)
os.write(1, f"told {signal.Signals(told[0]).name}\\n".encode())
pathlib.Path(os.environ["MPISTRAT_OUTCOME_FILE"]).write_text("REQUEUE")
"""


def python(text):
    return sys.executable, "-c", text


def test_a_job_is_started_again(slurm, tmp_path):
    done = submit(slurm, tmp_path, "--strategy", "one_device", program=python(ONCE_MORE))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"run \d", done.stdout) == ["run 0", "run 1"]  # both, in one file
    job = job_of(done)
    assert f"saved; asking for another run of job {job}\n" in done.stdout
    assert slurm.job(job).restarts() == 1
    assert "started again 1 x" in done.stderr
    assert list(tmp_path.glob(".mpistrat*")) == []


def test_the_job_of_an_array_that_asks_is_started_again(slurm, tmp_path):
    only_the_second = "import os\nif os.environ['SLURM_ARRAY_TASK_ID'] == '2':{}"
    program = only_the_second.format(ONCE_MORE.replace("\n", "\n    "))
    options = ("--strategy", "array", "--array", "1-2")
    done = submit(slurm, tmp_path, *options, program=python(program))
    assert done.returncode == 0, done.stderr
    restarts = [slurm.job(f"{job_of(done)}_{index}").restarts() for index in (1, 2)]
    assert restarts == [0, 1]


def test_a_failing_program_is_not_started_again(slurm, tmp_path):
    program = python("raise SystemExit(5)")
    done = submit(slurm, tmp_path, "--strategy", "one_device", program=program)
    assert done.returncode == 5
    assert slurm.job(job_of(done)).restarts() == 0


def launched(slurm, folder, script, ranks=2):
    """Submit a job that waits to be told, and return it once all its ranks run."""
    job = slurm.sbatch(script, folder=folder)
    assert wait_until(lambda: job.output().count("run 0") == ranks, 60, 0.1), job.output()
    return job


def script_of(slurm, folder, *options):
    options = ("--strategy", "mirrored", "--tasks-per-node", "2", *options)
    return render(slurm, folder, *options, program=python(TOLD))


def test_a_signal_reaches_every_rank(slurm, tmp_path):
    job = launched(slurm, tmp_path, script_of(slurm, tmp_path))
    job.signal("USR1")  # as --signal=USR1@300 does: to the steps, and not to the script
    output = job.completed(90)
    assert output.count("told SIGUSR1") == 2
    assert output.count("run 1") == 2


def test_the_script_tells_ranks_that_mpirun_started(slurm, tmp_path):
    mpi = Mpi("mpirun", None, ("-ppn {tasks_per_node}",), "as where Slurm has no fitting type")
    here = Here(str(Path(sys.executable).parent), "python", mpi)
    script = of(program=python(TOLD), here=here, account=None, time="10")
    assert "#SBATCH --signal=B:USR1@" in script
    job = launched(slurm, tmp_path, script)
    job.signal("USR1", "--batch")  # as --signal=B:USR1@300 does: to the script alone
    output = job.completed(90)
    assert output.count("told SIGUSR1") == 2
    assert output.count("run 1") == 2


def test_the_script_tells_ranks_where_the_signal_is_for_it(slurm, tmp_path):
    script = script_of(slurm, tmp_path, "--signal", "B:USR1@60")
    job = launched(slurm, tmp_path, script)
    job.signal("USR1", "--batch")
    output = job.completed(90)
    assert output.count("told SIGUSR1") == 2
    assert output.count("run 1") == 2


def test_a_preempted_job_is_started_again_once(slurm, tmp_path):
    options = ("--nodes", "4", "--directive=--exclusive")
    job = launched(slurm, tmp_path, script_of(slurm, tmp_path, *options), ranks=8)
    everything = ("--nodes=4", "--exclusive", "--partition=high")
    slurm.sbatch("#!/bin/bash\n", *everything, folder=tmp_path).completed(60)
    output = job.completed(90)
    assert output.count("told SIGTERM") == 8
    assert job.restarts() == 1


def test_a_cancelled_job_is_not_started_again(slurm, tmp_path):
    job = launched(slurm, tmp_path, script_of(slurm, tmp_path))
    job.cancel()
    assert job.wait(60) == "CANCELLED"
    time.sleep(1)
    assert job.fields()["JobState"] == "CANCELLED"
    assert job.restarts() == 0


def test_a_program_that_always_asks_is_not_started_for_ever(slurm, tmp_path):
    always = ONCE_MORE.replace('"REQUEUE" if run == "0" else "DONE"', '"REQUEUE"')
    script = render(slurm, tmp_path, "--strategy", "one_device", program=python(always))
    assert "\nmost_restarts=100\n" in script
    script = script.replace("most_restarts=100", "most_restarts=1")
    job = slurm.sbatch(script, folder=tmp_path)
    assert job.wait(90) == "FAILED"
    assert job.restarts() == 1
    assert "saved, and started again 1 times: see most_restarts" in job.output()


def test_a_cancelled_job_of_an_array_is_not_started_again(slurm, tmp_path):
    """The last one, whose number is the array's: what Slurm says of that is of all its jobs."""
    options = ("--strategy", "array", "--array", "1-2")
    job = slurm.sbatch(render(slurm, tmp_path, *options, program=python(TOLD)), folder=tmp_path)
    outputs = tmp_path.glob
    assert wait_until(
        lambda: sum("run 0" in f.read_text() for f in outputs("*.out")) == 2, 60, 0.1
    )
    last = slurm.job(f"{job.number}_2")
    last.cancel()
    assert wait_until(lambda: last.fields()["JobState"] != "RUNNING", 60, 0.1)
    time.sleep(2)
    assert last.fields()["JobState"] == "CANCELLED"
    assert last.restarts() == 0
    (output,) = outputs("*_2.out")
    assert "told SIGTERM" in output.read_text()
    assert "asking" not in output.read_text()
