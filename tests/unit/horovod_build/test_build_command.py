"""The command as a user meets it, on a pretended machine."""

import io
import os
from pathlib import Path

import pytest

from helpers.horovod.machine import Machine

pytest.importorskip("typer")

import typer.testing
from rich.console import Console

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build import command, installing, progress_line, trial
from mpistrat.testing.launcher import JobResult, LauncherError, RankOutput
from mpistrat.testing.sets import takes_long


@pytest.fixture
def machine(tmp_path, monkeypatch):
    for name in ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    return Machine(tmp_path, monkeypatch).complete()


def run(*arguments):
    return typer.testing.CliRunner().invoke(command.app, list(arguments))


def test_it_compiles_once(machine):
    first = run("build", "--wheel-only")
    assert first.exit_code == 0, first.output
    wheel = first.stdout.strip()
    assert wheel.startswith(str(machine.folder / "cache" / "horovod"))
    assert wheel.endswith("horovod-0.28.1-cp311-cp311-linux_x86_64.whl")
    assert "compiling Horovod 0.28.1" in first.stderr
    second = run("build", "--wheel-only")
    assert second.stdout == first.stdout
    assert f"its wheel is in the cache: {wheel}" in second.stderr
    assert len(machine.calls("pip wheel")) == 1
    assert run("build", "--wheel-only", "--rebuild").exit_code == 0
    assert len(machine.calls("pip wheel")) == 2


def test_the_path_is_on_standard_output_beside_a_terminal(machine, monkeypatch):
    # As in: wheel=$(mpistrat horovod build --wheel-only)
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(progress_line, "Console", lambda **_: terminal)
    assert run("build", "--wheel-only").stdout.endswith("linux_x86_64.whl\n")


def test_the_environment_is_left_alone_by_the_build(machine):
    run("build", "--wheel-only")
    assert all("--target" in call for call in machine.calls("pip install"))
    (call,) = machine.calls("pip wheel")
    assert "--no-build-isolation" in call, "TensorFlow is not found otherwise"
    assert "--no-cache-dir" in call, "pip's cache cannot tell two MPI libraries apart"


def test_cmake_is_fetched_where_it_is_missing(machine):
    run("build", "--wheel-only")
    assert "cmake>=" not in machine.calls("--target")[0]
    machine.without("cmake")
    run("build", "--wheel-only", "--rebuild")
    assert "cmake>=3.18,<4" in machine.calls("--target")[1]


def test_it_is_installed_and_tested(machine, monkeypatch):
    monkeypatch.setattr(command, "try_on_two_ranks", lambda timeout_s: "rank 0 of 2: right (3 s)")
    done = run("build")
    assert done.exit_code == 0, done.output
    assert "Horovod is installed; rank 0 of 2: right (3 s)" in done.stdout
    installs = [call for call in machine.calls("pip install") if "--target" not in call]
    assert ["--force-reinstall" in call for call in installs] == [True, False]
    assert "--no-deps" in installs[0], "NumPy would be replaced, too"


def test_another_horovod_that_is_replaced(machine, monkeypatch):
    monkeypatch.setattr(command, "try_on_two_ranks", lambda timeout_s: "rank 0 of 2: right (3 s)")
    monkeypatch.setattr(command, "installed_from", lambda: "file:///with-pytorch.whl")
    done = run("build")
    assert "replacing the Horovod that is installed, from file:///with-pytorch.whl" in done.stderr


def test_what_a_killed_build_left_is_removed(machine):
    wheel = Path(run("build", "--wheel-only").stdout.strip())
    old, new = wheel.parent / "build-old", wheel.parent / "build-new"
    for folder in (old, new):
        (folder / "tools").mkdir(parents=True)
    os.utime(old, (0, 0))
    assert run("build", "--wheel-only", "--rebuild").exit_code == 0
    assert not old.exists()
    assert new.exists(), "another build may be at work in it"


def test_a_test_that_fails(machine, monkeypatch):
    def fail(*_):
        raise LauncherError("job of 2 ranks exited with 1")

    monkeypatch.setattr(trial, "run_job", fail)
    failed = run("build")
    assert failed.exit_code == 1
    assert "its test on 2 ranks fails: job of 2 ranks exited with 1" in failed.stderr
    assert "mpistrat horovod build --rebuild" in failed.stderr


def test_a_compilation_that_fails(machine):
    machine.add_python(pip='echo "mpi_ops.cc:3: error: no type"; exit 1')
    failed = run("build")
    assert failed.exit_code == 1
    assert "mpi_ops.cc:3: error: no type" in failed.stderr
    (log,) = (machine.folder / "cache" / "horovod").glob("*/build.log")
    assert f"Its log is {log}" in failed.stderr
    assert "take another one by CXX" in failed.stderr
    assert "error: no type" in log.read_text(encoding="utf-8")
    assert [file.name for file in log.parent.glob("build-*")] == []
    assert not [call for call in machine.calls("pip install") if "--target" not in call]


def test_packages_that_cannot_be_downloaded(machine):
    real = (machine.bin / "python").read_text(encoding="utf-8")
    no_packages = "echo ERROR: No matching distribution found for wheel; exit 1"
    (machine.bin / "python").write_text(real.replace("echo installed", no_packages), "utf-8")
    failed = run("build")
    assert failed.exit_code == 1
    assert "No matching distribution found for wheel" in failed.stderr
    assert "PIP_FIND_LINKS" in failed.stderr
    assert machine.calls("pip wheel") == []


def test_a_compilation_that_makes_nothing(machine):
    machine.add_python(pip="exit 0")
    failed = run("build")
    assert failed.exit_code == 1
    assert "pip made no wheel" in failed.stderr


def test_what_is_missing_comes_first(machine):
    machine.without("make")
    failed = run("build")
    assert failed.exit_code == 1
    assert "Horovod cannot be built here" in failed.stderr
    assert "apt install make" in failed.stderr
    assert machine.calls("pip wheel") == []


def test_a_rank_of_a_job_does_not_build(machine, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "4")
    failed = run("build")
    assert failed.exit_code == 2
    assert "this is one of 4 ranks" in failed.stderr
    assert "without mpirun" in failed.stderr


def test_ctrl_c(machine, monkeypatch):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "examine", interrupt)
    assert run("build").exit_code == 130


def test_check_says_what_is_here(machine, monkeypatch):
    monkeypatch.setattr(command, "installed_from", lambda: None)
    here = run("check")
    assert here.exit_code == 0, here.output
    assert "tensorflow-cpu 2.21.0" in here.stdout
    assert "MPICH Version: 5.0.2" in here.stdout
    assert "There is no wheel for these in the cache" in here.stdout
    assert "Horovod is not installed: `mpistrat horovod build` does it." in here.stdout


@takes_long()
def test_check_knows_which_one_is_installed(machine, monkeypatch):
    wheel = run("build", "--wheel-only").stdout.strip()
    monkeypatch.setattr(command, "installed_from", lambda: f"file://{wheel}")
    assert "Horovod is installed, from this wheel." in run("check").stdout
    monkeypatch.setattr(command, "installed_from", lambda: "file:///other.whl")
    assert "Horovod is installed, from file:///other.whl" in run("check").stdout


def test_check_says_what_is_missing(machine):
    machine.without("mpicxx")
    here = run("check")
    assert here.exit_code == 1
    assert "missing: found no mpicxx" in here.stdout
    assert "cannot be built here before that is installed" in here.stdout


def test_where_an_installation_came_from(machine):
    assert installing.installed_from() in (None, "") or installing.installed_from()
    machine.file("packages/horovod-0.28.1.dist-info/METADATA", "Name: horovod\nVersion: 0.28.1\n")
    assert installing.installed_from() == ""
    note = '{"url": "file:///a.whl", "archive_info": {}}'
    machine.file("packages/horovod-0.28.1.dist-info/direct_url.json", note)
    assert installing.installed_from() == "file:///a.whl"


def test_what_was_tried_is_said(monkeypatch):
    ranks = (
        RankOutput("a warning\nrank 0 of 2: right\n", ""),
        RankOutput("rank 1 of 2: right\n", ""),
    )
    done = JobResult(0, False, 3.4, ranks, "")
    monkeypatch.setattr(trial, "run_job", lambda *_: done)
    assert trial.try_on_two_ranks(1.0) == "rank 0 of 2: right (3 s)"


def test_no_launcher_is_said(monkeypatch):
    def missing(*_):
        raise LauncherError("found no mpirun")

    monkeypatch.setattr(trial, "run_job", missing)
    with pytest.raises(BackendUnavailableError, match="found no mpirun"):
        trial.try_on_two_ranks(1.0)
