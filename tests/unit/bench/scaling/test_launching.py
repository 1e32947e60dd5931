"""How ranks are started: by the user's words, by srun in a job of Slurm, or by mpirun."""

import sys

import pytest

pytest.importorskip("pydantic")

from mpistrat.bench.scaling import launching
from mpistrat.bench.scaling.launching import find_start
from mpistrat.errors import UsageError
from mpistrat.sites.rendering.launch import Mpi

PYTHON = [sys.executable, "-m", "x"]


def test_the_users_words() -> None:
    start = find_start("srun -N {nodes} -n {ranks} --tasks={per_node} 'a b' ${other} {}")
    words = ["srun", "-N", "2", "-n", "5", "--tasks=3", "a b", "${other}", "{}"]
    assert start.command(5, 2, ["-m", "x"]) == [*words, *PYTHON]


@pytest.mark.parametrize(
    ("text", "words"),
    [("mpirun -n 2", "expected {ranks} where"), ("", "expected {ranks}"), ("'a", "No closing")],
)
def test_words_that_will_not_do(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_start(text)


def test_mpirun_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("PMI_RANK", "3")
    start = find_start(None)
    assert start.command(3, 1, ["-m", "x"])[-5:] == ["-n", "3", *PYTHON]
    assert "PMI_RANK" not in start.environment


def test_srun_in_a_job_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(launching.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(launching, "probe", lambda python: Mpi("srun", "pmi2"))
    command = find_start(None).command(4, 2, ["-m", "x"])
    counts = ["--nodes=2", "--ntasks=4", "--ntasks-per-node=2"]
    assert command == ["srun", "--exact", *counts, "--kill-on-bad-exit=1", "--mpi=pmi2", *PYTHON]


def test_mpirun_where_srun_cannot_start_this_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(launching.shutil, "which", lambda name: f"/bin/{name}")
    flags = ("--map-by ppr:{tasks_per_node}:node", "--bind-to none")
    monkeypatch.setattr(launching, "probe", lambda python: Mpi("mpirun", None, flags))
    command = find_start(None).command(4, 2, ["-m", "x"])
    assert command[-8:-3] == ["ppr:2:node", "--bind-to", "none", "-n", "4"]
