"""``mpistrat doctor`` under mpirun finds faults that are there, and none in a healthy job."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from helpers.doctor.reports import HEALTHY, Report, examine, planted_command
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")
pytest.importorskip("rich")

SEVERAL_CORES = len(os.sched_getaffinity(0)) > 1
FAKE_MPIRUN = "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n"


@functools.cache
def healthy() -> Report:
    return examine([])


# ------------------------------------------------------------------------------- a healthy job


def test_a_healthy_job_has_no_faults():
    report = healthy()
    assert report.faulty() == set(), report.text
    assert report.returncode in (0, 1), report.text  # 1: see Report.faulty
    assert report.returncode == report.content["exit_code"]


def test_the_report_is_printed_once():
    text = healthy().text
    assert text.count("mpistrat doctor 0") == 1
    assert "2 ranks on 1 node" in text
    assert re.search(r"^0 failures, [01] warnings?, \d+ ok, \d+ not here; ", text, re.MULTILINE)
    assert "\x1b" not in text
    assert "Traceback" not in text


def test_checks_take_less_than_a_second_and_all_less_than_a_minute():
    content = healthy().content
    # Twice as long here, where other tests run on the same cores.
    slow = {c["name"]: c["duration_s"] for c in content["checks"] if c["duration_s"] > 2}
    assert slow == {}
    assert content["duration_s"] < 60


@pytest.mark.parametrize(
    "name", ["gpus.health", "cpus.slurm_cpus_per_task", "ranks.clocks", "site.options"]
)
def test_what_is_not_here_says_so(name):
    if name == "gpus.health" and shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    assert healthy().status(name) == "not here"


@takes_long()
def test_files_for_programs(tmp_path):
    file = tmp_path / "junit.xml"
    result = run_job(
        ["-m", "mpistrat", "doctor", "--json", "-", "--junit", str(file)], 2, env=HEALTHY
    )
    content, suite = json.loads(result.ranks[0].stdout), ET.parse(file).getroot()
    assert len(suite) == len(content["checks"]) > 25
    assert suite.get("failures") == str(content["summary"]["failure"])
    assert content["job"]["ranks"] == 2
    assert not result.ranks[1].stdout


# -------------------------------------------------------------------- faults, many in one job

PLANTED = {
    "cpus.cpu_mask": ["may run on the same CPUs"],
    "cpus.thread_count": ["2 ranks", "16 threads", "OMP_NUM_THREADS"],
    "network.interfaces": ["NCCL_SOCKET_IFNAME=docker0", "names none of"],
    "files.temporary_folder": ["characters", "TMPDIR"],
    "files.caches": ["MPISTRAT_CACHE=/dev/null/cache cannot be written"],
    "job.resource_limits": ["256 files", "ulimit -n"],
    "ranks.same_environment": ["NCCL_ALGO is Ring on rank 1", "not set on the others"],
    "launch.one_mpi_library": ["MPI libraries are loaded"],
}


@functools.cache
def faulty() -> Report:
    """Return the report of a job in which many things are wrong at once."""
    library = Path(healthy().value("launch.one_mpi_library").rpartition(", ")[2])
    # A folder of its own: what a test's tmp_path is named, is long enough already.
    folder = Path("/tmp") / f"mpistrat-doctor-{os.getpid()}-{'x' * 60}"
    folder.mkdir()
    try:
        second = shutil.copy(library, folder / library.name)
        (folder / "package-1.0.dist-info").mkdir()
        (folder / "package-1.0.dist-info" / "METADATA").write_text("Name: package\nVersion: 1.0\n")
        faults = [
            [None, "load", str(second)],
            [None, "cores", [min(os.sched_getaffinity(0))]],
            [None, "limit", {"RLIMIT_NOFILE": 256, "RLIMIT_CORE": 1 << 20}],
            [1, "environment", {"NCCL_ALGO": "Ring", "HF_TOKEN": "hf-secret"}],
            [1, "packages", str(folder)],
        ]
        variables = {
            "OMP_NUM_THREADS": "8",
            "NCCL_SOCKET_IFNAME": "docker0",
            "TMPDIR": str(folder),
            "MPISTRAT_CACHE": "/dev/null/cache",
            # For what the copy needs: MPICH's wheel has that in a folder below.
            "LD_LIBRARY_PATH": f"{library.parent}:{library.parent / 'mpich'}",
        }
        return examine(faults, environment=variables)
    finally:
        shutil.rmtree(folder)


@takes_long()
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name):
    if name == "cpus.cpu_mask" and not SEVERAL_CORES:
        pytest.skip("one core: there is none that could be free")
    assert faulty().says(name, *PLANTED[name]), faulty().text
    assert healthy().status(name) in ("ok", "not here")


@takes_long()
def test_core_dumps_and_packages_are_found():
    assert faulty().says("job.resource_limits", "core dumps of 1 MiB", "ulimit -c 0")
    assert faulty().says(
        "ranks.same_environment", "package is 1.0 on rank 1", "none on the others"
    )


@takes_long()
def test_failures_are_the_exit_status():
    assert faulty().returncode == 2
    assert faulty().content["exit_code"] == 2


@takes_long()
def test_secrets_are_not_in_the_report():
    report = faulty()
    assert "NCCL_ALGO" in report.text
    assert "hf-secret" not in report.text + json.dumps(report.content)


# ------------------------------------------------------------------------- faults of their own


@takes_long()
def test_mpirun_of_another_library(tmp_path):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(FAKE_MPIRUN)
    mpirun.chmod(0o755)
    faults = [[None, "environment", {"PATH": f"{tmp_path}:{os.environ['PATH']}"}]]
    report = examine(faults, ranks=1)
    assert report.says("launch.one_mpi_library", str(mpirun), "of Open MPI")


@takes_long()
def test_ranks_that_another_mpirun_started(tmp_path):
    """Each process finds no more of its job than a foreign launcher would let it find."""
    env = dict.fromkeys(("PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID"))
    announced = {"OMPI_COMM_WORLD_SIZE": "2"}
    faults = [
        *([rank, "environment", {"OMPI_COMM_WORLD_RANK": str(rank)}] for rank in (0, 1)),
        [None, "environment", env | announced],
    ]
    report = examine(faults)
    assert report.says("launch.one_job", "2 separate jobs of one rank each", "mpirun -n 2")
    assert report.returncode != 0
    assert report.text.count("mpistrat doctor 0") == 1


@takes_long()
def test_an_import_that_narrows_the_mask(tmp_path):
    if not SEVERAL_CORES:
        pytest.skip("one core: no mask can be narrower")
    module = tmp_path / "narrowing.py"
    module.write_text("import os\nos.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])\n")
    options = ("--import", "narrowing", "--import", "no_such_module")
    report = examine([], *options, ranks=1, environment={"PYTHONPATH": str(tmp_path)})
    assert report.says("cpus.cpu_mask", "import narrowing changes the mask")
    assert report.says("files.environment", "import no_such_module: ModuleNotFoundError")


@takes_long()
def test_small_shared_memory():
    in_namespace = ["unshare", "--mount", "sh", "-c"]
    mount = "mount -t tmpfs -o size=8m none /dev/shm"
    tried = subprocess.run([*in_namespace, mount], capture_output=True, timeout=30, check=False)
    if tried.returncode:
        pytest.skip(f"no mount namespace here: {tried.stderr.decode().strip()}")
    command = f"{mount} && exec {sys.executable} -m mpistrat doctor --json -"
    env = {**os.environ, **HEALTHY}
    said = subprocess.run(
        [*in_namespace, command], capture_output=True, env=env, timeout=60, check=False
    )
    report = Report(said.returncode, "", json.loads(said.stdout))
    assert report.says("files.shared_memory", "8 MiB free", "--shm-size")
    assert said.returncode == 2
    assert healthy().status("files.shared_memory") == "ok"


@takes_long()
def test_a_rank_on_a_busy_core():
    if not SEVERAL_CORES or os.getuid():
        pytest.skip("a core of its own for each rank, and a high priority, need cores and root")
    first, second, *_ = sorted(os.sched_getaffinity(0))
    report = examine([[0, "cores", [first]], [1, "busy", second]])
    assert report.says("ranks.slow_rank", "rank 1", "has a core for"), report.text


# --------------------------------------------------------------- ranks that hang, checks that fail


@takes_long()
def test_a_rank_that_never_starts_mpi_is_named():
    start = time.monotonic()
    report = examine([[1, "sleep", 30]], "--deadline", "8")
    assert report.says("launch.one_job", "MPI did not start", "rank 1 of 2 did not begin it")
    assert report.returncode == 2
    assert time.monotonic() - start < 25


@takes_long()
def test_a_rank_that_stops_is_named():
    report = examine([[1, "stop in", "job.resource_limits"]], "--deadline", "10")
    assert report.says("launch.one_job", "rank 1 on", "did not answer in time"), report.text
    assert report.returncode == 2
    assert report.status("files.shared_memory") == "ok"


@takes_long()
def test_a_check_that_raises_is_a_line_of_the_report():
    report = examine([[1, "raise in", "job.resource_limits"]])
    assert report.says("job.resource_limits", "rank 1", "OSError: planted in")
    assert report.faulty() == {"job.resource_limits"}
    assert "Traceback" not in report.text


# ----------------------------------------------------------------------------------- bad options


@takes_long()
@pytest.mark.parametrize("size", [1, 2])
def test_a_report_that_cannot_be_written_is_one_line(size):
    """The folder is there, but takes no files; the table is printed all the same."""
    result = run_job(["-m", "mpistrat", "doctor", "--json", "/proc/report.json"], size)
    assert result.returncode == 2
    assert "mpistrat doctor: cannot write: " in result.ranks[0].stderr
    assert len(result.ranks[0].stderr.splitlines()) == 1
    assert " not here; " in result.ranks[0].stdout


@takes_long()
def test_variables_that_are_no_unicode():
    command = planted_command([[1, "environment", {"OMP_X": "a\udcff\x1b[31m"}]])
    result = run_job(command, 2, env=HEALTHY | {"PYTHONIOENCODING": "utf-8:strict"})
    assert "Traceback" not in result.ranks[0].text
    assert "OMP_X is 'a" in result.ranks[0].stdout
    assert "\x1b" not in result.ranks[0].stdout


@takes_long()
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--site", "perlmuter"], ["no site is named 'perlmuter'", "perlmutter"]),
        (["--json", "-", "--junit", "-"], ["would both be printed"]),
        (["--junit", "/no/such/folder/x.xml"], ["there is no folder /no/such/folder"]),
        (["--write-site"], ["--write-site needs --site NAME"]),
    ],
)
def test_bad_options_are_one_line_on_one_rank(options, words):
    result = run_job(["-m", "mpistrat", "doctor", *options], 2)
    assert result.returncode == 2
    assert len(result.ranks[0].stderr.splitlines()) == 1
    for word in words:
        assert word in result.ranks[0].stderr
    assert not result.ranks[1].text
