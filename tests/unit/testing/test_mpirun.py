"""Finding mpirun and telling whose it is, with stand-ins that only print a version."""

import sys
from pathlib import Path

import pytest

from mpistrat.testing.launching.mpirun import Launcher, LauncherError, find_launcher
from mpistrat.testing.launching.rank import rank_from_environment


def stand_in(folder: Path, banner: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mpirun"
    file.write_text(f"#!/bin/sh\necho '{banner}'\n")
    file.chmod(0o700)
    return file


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty environment folder and an empty PATH."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path / "prefix"


@pytest.mark.parametrize(
    ("banner", "kind"),
    [
        ("HYDRA build details:", "mpich"),
        ("mpirun (Open MPI) 5.0.11", "openmpi"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18", "intel"),
    ],
)
def test_kind_is_told_by_the_version_text(prefix: Path, banner: str, kind: str) -> None:
    file = stand_in(prefix / "bin", banner)
    assert find_launcher() == Launcher(file, kind)


def test_environment_comes_before_path(prefix: Path, tmp_path: Path) -> None:
    stand_in(tmp_path / "path", "HYDRA")
    own = stand_in(prefix / "bin", "Open MPI")
    assert find_launcher() == Launcher(own, "openmpi")


def test_path_is_searched_next(prefix: Path, tmp_path: Path) -> None:
    assert not prefix.exists()
    on_path = stand_in(tmp_path / "path", "HYDRA")
    assert find_launcher() == Launcher(on_path, "mpich")


@pytest.mark.usefixtures("prefix")
def test_no_mpirun_names_the_cure() -> None:
    with pytest.raises(LauncherError, match=r"found no mpirun in .*pip install"):
        find_launcher()


def test_unknown_mpirun_is_refused(prefix: Path) -> None:
    stand_in(prefix / "bin", "mpirun of a strange kind")
    with pytest.raises(LauncherError, match=r"'mpirun of a strange kind.*expected MPICH"):
        find_launcher()


def test_openmpi_may_oversubscribe_and_run_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMPI_ALLOW_RUN_AS_ROOT", raising=False)
    launcher = Launcher(Path("/x/mpirun"), "openmpi")
    assert launcher.command(3)[0] == "/x/mpirun"
    assert launcher.command(3)[-2:] == ["-n", "3"]
    assert "--oversubscribe" in launcher.command(3)
    assert launcher.environment()["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert Launcher(Path("/x/mpirun"), "mpich").command(2) == ["/x/mpirun", "-n", "2"]


def test_identity_of_an_outer_job_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = {"PMI_RANK": "3", "PMIX_RANK": "3", "OMPI_COMM_WORLD_RANK": "3"}
    for name, value in (outer | {"PMIX_MCA_gds": "hash"}).items():
        monkeypatch.setenv(name, value)
    inner = Launcher(Path("/x/mpirun"), "mpich").environment()
    assert not outer.keys() & inner.keys()
    assert inner["PMIX_MCA_gds"] == "hash"


@pytest.mark.parametrize("name", ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"])
def test_rank_is_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(other, raising=False)
    assert rank_from_environment() == 0
    monkeypatch.setenv(name, "2")
    assert rank_from_environment() == 2
