"""``mpistrat slurm submit`` hands a job to Slurm as it is meant, and ends as the job does."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.slurm.command import PLAIN, mpistrat_slurm
from helpers.slurm.submitting import job_of, render, submit
from mpistrat.system.waiting import wait_until
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(120)

SHOW = "import json, os, sys; print(json.dumps([os.environ['SLURM_JOB_NAME'], *sys.argv[1:]]))"
ODD = [
    "two words",
    "it's",
    '"q"',
    "$(touch ran)",
    "`touch ran`",
    "a\nb",
    "--",
    "-n",
    "",
    "\\",
    "*",
    "a\r\nb",
    "a \nb",
    "\u2028#SBATCH --nodes=9",
    "\udcff",  # a byte that is not UTF-8
]


@takes_long()
def test_names_and_arguments_arrive_as_they_are(slurm, tmp_path):
    name = "my $(touch ran) `touch ran` 'job' \"x\" # \\ no"
    options = ("--strategy", "one_device", "--name", name)
    done = submit(slurm, tmp_path, *options, program=(sys.executable, "-c", SHOW, *ODD))
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("["))
    assert json.loads(line) == [name, *ODD]
    assert [file.name for file in tmp_path.iterdir()] == [f"{name}-{job_of(done)}.out"]


@takes_long()
def test_a_script_of_the_users_own(slurm, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\necho here\necho -n 'no end'\nexit 3\n")
    done = mpistrat_slurm("submit", "job.sh", folder=tmp_path, variables=slurm.environment)
    assert done.returncode == 3
    assert done.stdout == "here\nno end\n"
    job = job_of(done)
    assert done.stderr.startswith("tested: job ")
    end = (
        f"job {job}: FAILED (NonZeroExitCode), exit code 3; output in {tmp_path}/slurm-{job}.out\n"
    )
    assert done.stderr.endswith(end)


@takes_long()
@pytest.mark.parametrize(
    ("directives", "name", "output"),
    [
        ("", "my own.sh", "slurm-{job}.out"),
        ("#SBATCH --output=%x-%j.out\n", "my own.sh", "my own.sh-{job}.out"),
        ("#SBATCH -J named -o %x.out\n", "named", "named.out"),
    ],
)
def test_a_script_of_the_users_own_has_a_name(slurm, tmp_path, directives, name, output):
    text = f'#!/bin/bash\n{directives}set -u\necho "name: $SLURM_JOB_NAME"\n'
    (tmp_path / "my own.sh").write_text(text)
    done = mpistrat_slurm("submit", "my own.sh", folder=tmp_path, variables=slurm.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"name: {name}\n"
    file = tmp_path / output.format(job=job_of(done))
    assert done.stderr.endswith(f": COMPLETED; output in {file}\n")
    assert file.is_file()


@takes_long()
def test_a_script_that_comes_by_a_pipe(slurm, tmp_path):
    command = f"{sys.executable} -m mpistrat slurm submit <(printf '#!/bin/bash\\necho piped\\n')"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env=slurm.environment | PLAIN,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "piped\n"), done.stderr


@takes_long()
def test_what_sbatch_refuses(slurm, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --partition=none\n")
    done = mpistrat_slurm("submit", "job.sh", folder=tmp_path, variables=slurm.environment)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("mpistrat slurm: sbatch refuses the script: ")
    assert "invalid partition specified: none" in line


@takes_long()
def test_a_job_does_not_begin_with_the_variables_of_another(slurm, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\necho ${SLURM_CPUS_PER_TASK:-none}\n")
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n0", "SLURM_CPUS_PER_TASK": "3"}
    environment = slurm.environment | job | {"SBATCH_TIMELIMIT": "5"}
    done = mpistrat_slurm("submit", "job.sh", folder=tmp_path, variables=environment)
    assert done.stdout == "none\n", done.stderr
    assert "SBATCH_TIMELIMIT: set here, and overrides the script" in done.stderr


@takes_long()
def test_a_job_that_is_not_followed(slurm, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\nsleep 60\n")
    done = mpistrat_slurm(
        "submit", "job.sh", "--no-follow", folder=tmp_path, variables=slurm.environment
    )
    assert done.returncode == 0
    assert slurm.job(job_of(done)).state() in ("PENDING", "RUNNING")


@takes_long()
def test_ctrl_c_leaves_the_job_alone(slurm, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\necho begun\nsleep 60\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "mpistrat", "slurm", "submit", "job.sh"],
        cwd=tmp_path,
        env=slurm.environment | PLAIN,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    outputs = tmp_path.glob
    assert wait_until(lambda: any("begun" in f.read_text() for f in outputs("*.out")), 60, 0.1)
    assert wait_until(lambda: process.poll() is None, 1, 0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes in front
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    (file,) = outputs("*.out")
    job = file.stem.removeprefix("slurm-")
    assert errors.endswith(
        f"job {job} goes on: `squeue -j {job}` shows it, `scancel {job}` ends it\n"
    )
    assert slurm.job(job).state() == "RUNNING"


@takes_long()
def test_a_cancelled_job_is_a_failure(slurm, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/bash\nscancel $SLURM_JOB_ID\nsleep 60\n")
    done = mpistrat_slurm("submit", "job.sh", folder=tmp_path, variables=slurm.environment)
    assert done.returncode != 0
    assert f"job {job_of(done)}: CANCELLED" in done.stderr.splitlines()[-1]


@takes_long()
def test_the_environment_is_staged_to_the_nodes(slurm, tmp_path):
    """The copy is what runs, and it is gone afterwards."""
    made = tmp_path / "made here"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    show = "import sys; print('prefix', sys.prefix)"
    options = ("--strategy", "one_device", "--stage-environment", str(made))
    done = submit(slurm, tmp_path, *options, program=("-c", show))
    assert done.returncode == 0, done.stderr + done.stdout
    staged = f"/tmp/mpistrat-environment-{job_of(done)}"
    assert f"prefix {staged}\n" in done.stdout
    assert not os.path.exists(staged)
    assert list(tmp_path.glob("*.tar")) == []
    options = ("--strategy", "scaling", "--tasks-per-node", "1", "--stage-environment", str(made))
    done = submit(slurm, tmp_path, *options, program=("-c", show))
    (file,) = tmp_path.glob("scaling-*/ranks-1.out")
    assert f"prefix /tmp/mpistrat-environment-{job_of(done)}\n" in file.read_text()
    options = ("--strategy", "one_device", "--stage-environment", str(tmp_path))
    done = submit(slurm, tmp_path, *options, program=("-c", show))
    assert done.returncode == 1
    assert f"no Python in {tmp_path}/bin" in done.stdout


@takes_long()
@pytest.mark.parametrize("fails", ["tar", "sbcast", "srun"])
def test_a_staging_that_fails_leaves_nothing(slurm, tmp_path, fails):
    made = tmp_path / "made"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    options = ("--strategy", "one_device", "--stage-environment", str(made))
    script = render(slurm, tmp_path, *options, program=("-c", "print(6 * 7)"))
    # The command does its work first, and fails then; of srun only the unpacking.
    failing = f'{fails}() {{ command {fails} "$@"; [[ "$*" != *"tar -C"* ]]; }}'
    if fails != "srun":
        failing = f'{fails}() {{ command {fails} "$@"; return 1; }}'
    assert "set -u\n" in script
    job = slurm.sbatch(script.replace("set -u\n", f"set -u\n{failing}\n", 1), folder=tmp_path)
    assert job.wait(90) == "FAILED"
    assert "cannot " in job.output()
    assert "42\n" not in job.output()
    assert list(tmp_path.glob(".mpistrat-environment-*")) == []
    assert list(Path("/tmp").glob(f"mpistrat-environment-{job.number}*")) == []


LIMITS = """
import resource
names = ("RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_STACK")
print([resource.getrlimit(getattr(resource, name))[0] for name in names])
"""


@takes_long()
def test_the_limits_of_the_script_hold_for_its_ranks(slurm, tmp_path):
    """Also where Slurm's PropagateResourceLimits is NONE, as here."""
    options = ("--strategy", "multi_worker", "--nodes", "2", "--tasks-per-node", "1")
    script = render(slurm, tmp_path, *options, program=(sys.executable, "-c", LIMITS))
    script = script.replace("set -u\n", "set -u\nulimit -n 5000 -s 9000\n", 1)
    output = slurm.sbatch(script, folder=tmp_path).completed(90)
    assert output.count(f"[0, 5000, {9000 * 1024}]") == 2


@takes_long()
def test_render_chooses_the_type_of_mpi(slurm, tmp_path):
    options = ("--strategy", "mirrored", "--tasks-per-node", "2")
    script = render(slurm, tmp_path, *options, program=("a.py",))
    assert "    --mpi=pmi2 " in script
