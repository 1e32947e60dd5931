"""The Slurm of the tests does what tests count on: jobs, steps, requeues, preemption, its end."""

import re
import subprocess

import pytest

from helpers.slurm.cluster import running_cluster
from helpers.slurm.configuration import GPUS_PER_NODE
from helpers.slurm.programs import SlurmError
from mpistrat.testing.sets import takes_long


def test_steps_run_on_four_nodes(slurm):
    printed = slurm.srun("-N", "4", "--ntasks-per-node=2", "printenv", "SLURMD_NODENAME").stdout
    assert sorted(printed.split()) == sorted([*slurm.nodes, *slurm.nodes])


@takes_long()
def test_batch_jobs_and_their_output(slurm, tmp_path):
    script = "#!/bin/bash\n#SBATCH --output=%x-%j.out\nsrun -n 2 echo here\nexit $1\n"
    job = slurm.sbatch(script, "-N", "2", "--job-name=two words", folder=tmp_path)
    assert job.completed().split() == ["here", "here"]
    assert job.output_file().parent == tmp_path
    assert job.fields()["JobName"] == "two words"
    failing = slurm.sbatch("#!/bin/bash\necho no; exit 3\n", folder=tmp_path)
    with pytest.raises(SlurmError, match="ended as FAILED; its output:\nno"):
        failing.completed()


@takes_long()
def test_arrays(slurm, tmp_path):
    script = "#!/bin/bash\necho task $SLURM_ARRAY_TASK_ID\n"
    array = slurm.sbatch(script, "--array=0-2", folder=tmp_path)
    outputs = [slurm.job(f"{array.number}_{task}").completed() for task in range(3)]
    assert outputs == [f"task {task}\n" for task in range(3)]


ONCE_MORE = """\
#!/bin/bash
echo run ${SLURM_RESTART_COUNT:-0}
[ -z "$SLURM_RESTART_COUNT" ] || exit 0
"""


@takes_long()
@pytest.mark.deadline(90)
def test_a_requeued_job_starts_again_soon(slurm, tmp_path):
    script = ONCE_MORE + "scontrol requeue $SLURM_JOB_ID; sleep 60\n"
    job = slurm.sbatch(script, "--open-mode=append", folder=tmp_path)
    assert re.findall("run .", job.completed(60)) == ["run 0", "run 1"]
    assert job.restarts() == 1


@takes_long()
@pytest.mark.deadline(90)
def test_a_job_of_higher_priority_preempts(slurm, tmp_path):
    everything = ("--nodes=4", "--exclusive")
    script = ONCE_MORE + "sleep 60\n"
    low = slurm.sbatch(script, *everything, "--open-mode=append", folder=tmp_path)
    low.wait(states=["RUNNING"])
    high = slurm.sbatch("#!/bin/bash\n", *everything, "--partition=high", folder=tmp_path)
    high.completed()
    assert re.findall("run .", low.completed(60)) == ["run 0", "run 1"]
    assert low.restarts() == 1


def test_gpus_are_bound_by_the_launcher_or_shown_to_all(slurm):
    everyone = ("-N1", "-n2", "bash", "-c", "echo $SLURM_LOCALID:$CUDA_VISIBLE_DEVICES")
    full = slurm.srun("--gpus-per-node=2", *everyone).stdout.split()
    isolated = slurm.srun("--gpus-per-task=1", *everyone).stdout.split()
    assert sorted(full) == ["0:0,1", "1:0,1"]
    assert sorted(isolated) == ["0:0", "1:1"]
    too_many = f"--gpus-per-node={GPUS_PER_NODE + 1}"
    assert slurm.srun(too_many, "true", is_to_succeed=False).returncode


@takes_long()
def test_a_wait_has_a_deadline(slurm):
    with pytest.raises(SlurmError, match="did not end within 2 s"):
        slurm.srun("sleep", "60", timeout_s=2)


@takes_long()
@pytest.mark.deadline(90)
def test_its_end_leaves_no_process(slurm, tmp_path):
    with running_cluster() as other:
        other.sbatch("#!/bin/bash\nsrun sleep 77\n", folder=tmp_path).wait(states=["RUNNING"])
        configuration = other.environment["SLURM_CONF"]
        assert configuration != slurm.environment["SLURM_CONF"]
    found = subprocess.run(["pgrep", "-f", str(other.folder)], capture_output=True, check=False)
    assert not found.stdout
    assert not other.folder.exists()
    assert slurm.srun("echo", "still here").stdout == "still here\n"
