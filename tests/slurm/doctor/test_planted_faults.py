"""``mpistrat doctor`` in jobs of a real Slurm finds planted faults, and none in a healthy job."""

import shlex
import sys

import pytest

from helpers.doctor.reports import HEALTHY, Report, planted_command
from mpistrat.sites.reading import read
from mpistrat.testing.launcher import find_launcher
from mpistrat.testing.launching.mpirun import LauncherError
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")
pytest.importorskip("rich")

SITE = """\
name = "here"
title = "The Slurm of the tests"
scheduler = "slurm"
[sources]
us = { title = "the tests", date = 2026-11-01, by = "community" }
[node]
cores = { value = 4096, source = "us" }
[batch]
forbidden = [{ value = "--comment", source = "us", reason = "refused here" }]
required = [{ value = "--account", source = "us" }]
default_partition = { value = "no-such-partition", source = "us" }
[launcher]
command = { value = "srun", source = "us" }
mpi = { value = "pmi9", source = "us" }
[environment]
NCCL_NET = { value = "OFI", source = "us" }
[signal]
requeue = { value = false, source = "us" }
"""


@pytest.fixture(autouse=True)
def mpich():
    """Skip where another library than MPICH is installed, which this Slurm may not start."""
    try:
        kind = find_launcher().kind
    except LauncherError as error:
        pytest.skip(str(error))
    if kind != "mpich":
        pytest.skip(f"these tests start ranks by srun --mpi=pmi2, which {kind} does not know")


def doctor(folder, *options, faults=()):
    """Return the command line of a rank that writes ``folder/report.json``, for a shell."""
    command = planted_command(faults, "--json", str(folder / "report.json"), *options)
    return shlex.join([sys.executable, *command])


def batch(slurm, folder, body, *directives):
    """Return the report of a batch job, whose exit status is the one of its last command."""
    header = "".join(f"#SBATCH {line}\n" for line in directives)
    script = f"#!/bin/bash\n{header}ulimit -c 0\n{body}\n"
    job = slurm.sbatch(script, folder=folder, environment=HEALTHY)
    job.wait(60)
    code = int(job.fields()["ExitCode"].partition(":")[0])
    return Report.read(code, job.output(), folder / "report.json")


SRUN = "srun --mpi=pmi2 --kill-on-bad-exit=1 --propagate=CORE"
TWO = ("--nodes=2", "--ntasks=2", "--time=10", "--signal=USR1@300")


@takes_long()
@pytest.mark.deadline(120)
def test_a_healthy_job_has_no_faults(slurm, tmp_path):
    command = f"{SRUN} {doctor(tmp_path, '--site', 'generic-slurm')}"
    report = batch(slurm, tmp_path, command, *TWO)
    assert report.faulty() == set(), report.text
    assert len(set(report.content["job"]["hosts"])) == 2
    assert report.status("ranks.clocks") == "ok"
    assert report.status("launch.slurm_mpi") == "ok"
    assert report.returncode == report.content["exit_code"]
    assert report.text.count("mpistrat doctor 0") == 1


@takes_long()
@pytest.mark.deadline(120)
@pytest.mark.parametrize("mpi", ["--mpi=none", ""])
def test_srun_without_its_mpi_type_is_told_the_right_one(slurm, tmp_path, mpi):
    command = ["srun", "-N", "2", "-n", "3", *filter(None, [mpi])]
    line = f"{shlex.join(command)} {doctor(tmp_path)}"
    said = slurm.run(["sh", "-c", line], timeout_s=60, environment=HEALTHY, is_to_succeed=False)
    report = Report.read(said.returncode, said.stdout, tmp_path / "report.json")
    assert report.says("launch.one_job", "3 separate jobs", "srun --mpi=pmi2 -N 2 -n 3")
    assert said.stdout.count("mpistrat doctor 0") == 1
    assert said.returncode == 2


@takes_long()
@pytest.mark.deadline(120)
def test_a_process_alone_in_an_allocation(slurm, tmp_path):
    report = batch(slurm, tmp_path, doctor(tmp_path), "--ntasks=2")
    assert report.says("launch.one_job", "without srun or mpirun", "srun --mpi=pmi2 -N 1 -n 2")
    assert report.returncode == 1


FOUND = {
    "job.time_limit": ["--signal=USR1@30", "#SBATCH --signal=USR1@300"],
    "cpus.slurm_cpus_per_task": ["SLURM_TRES_PER_TASK=cpu:3", "--cpus-per-task="],
    "ranks.same_environment": ["UCX_TLS is tcp on rank 1"],
    "site.options": ["--comment=hello", "refused here"],
    "site.launcher": ["pmi9, which the site's file names"],
    "site.node": ["4096, as the site's file says"],
    "site.variables": ["NCCL_NET is not set"],
    "site.slurm_configuration": ["JobRequeue=1"],
}
CRASH = ["KillOnBadExit=0", "--kill-on-bad-exit=1"]


@pytest.fixture(scope="module")
def faulty(slurm_of_session, tmp_path_factory):
    """Return the report of a job in which many things are wrong, and the file that it wrote."""
    home, folder = tmp_path_factory.mktemp("config"), tmp_path_factory.mktemp("job")
    sites = home / "mpistrat" / "sites"
    sites.mkdir(parents=True)
    (sites / "here.toml").write_text(SITE)
    faults = [
        [None, "environment", {"SLURM_CPUS_PER_TASK": "2", "SLURM_TRES_PER_TASK": "cpu:3"}],
        [1, "environment", {"UCX_TLS": "tcp"}],
    ]
    command = doctor(folder, "--site", "here", "--write-site", faults=faults)
    body = f"export XDG_CONFIG_HOME={home}\nsrun --mpi=pmi2 {command}"
    directives = ("--nodes=2", "--ntasks=2", "--time=10", "--signal=USR1@30", "--comment=hello")
    return batch(slurm_of_session, folder, body, *directives), sites / "here.toml"


@takes_long()
@pytest.mark.deadline(120)
@pytest.mark.parametrize("name", FOUND)
def test_planted_faults_are_found(faulty, name):
    report, _ = faulty
    assert report.says(name, *FOUND[name]), report.text


@takes_long()
@pytest.mark.deadline(120)
def test_other_faults_of_the_same_job(faulty):
    report, _ = faulty
    assert report.says("job.time_limit", *CRASH), report.text
    assert report.says("site.options", "no --account")
    assert report.says("site.slurm_configuration", "no partition no-such-partition")
    assert report.returncode == 2


@takes_long()
@pytest.mark.deadline(120)
def test_the_sites_file_is_corrected(faulty):
    _, file = faulty
    site = read(file)
    assert (site.launcher.mpi.value, site.launcher.mpi.reason) == ("pmi2", "the file said pmi9")
    assert site.signal.requeue.value is True
    assert site.node.cores.value < 4096
    source = site.source_of(site.node.cores)
    assert "Slurm 2" in source.title
    assert source.by == "measured"
