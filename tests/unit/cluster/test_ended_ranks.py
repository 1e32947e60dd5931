"""Ranks whose programs have ended, as the others of their node find them."""

import os

import pytest

from mpistrat.cluster import ended_ranks
from mpistrat.cluster.mpi_start import ranks_without_mpi


@pytest.fixture(autouse=True)
def rank(monkeypatch, tmp_path):
    """Give a function that makes this process another rank of a job of three."""
    monkeypatch.setattr(ranks_without_mpi, "_PARENT", os.getpid())  # pytest's own may be process 1
    monkeypatch.setattr(ranks_without_mpi, "_is_rank", lambda pid, variable: False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name, value in {"PMI_FD": "9", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}.items():
        monkeypatch.setenv(name, value)
    return lambda number: monkeypatch.setenv("PMI_RANK", str(number))


def test_none_has_ended():
    assert ended_ranks.exit_statuses() == {}


def test_statuses_of_those_that_have(rank, tmp_path):
    for number, status in ((2, 0), (0, 3)):
        rank(number)
        ended_ranks.record_exit(status)
    assert ended_ranks.exit_statuses() == {2: 0, 0: 3}
    rank(1)
    ended_ranks.record_exit(0)
    assert not list(tmp_path.iterdir())  # which the last one removes


def test_a_program_that_goes_on_has_not_ended(rank, tmp_path):
    for number in (2, 0):
        rank(number)
        ended_ranks.record_exit(0)
    ended_ranks.take_back()
    assert ended_ranks.exit_statuses() == {2: 0}
    rank(1)
    ended_ranks.take_back()  # it has told nothing
    assert ended_ranks.exit_statuses() == {2: 0}
    ended_ranks.record_exit(0)  # the last one
    ended_ranks.take_back()
    assert not list(tmp_path.iterdir())


def test_an_abort_removes_the_file(rank, tmp_path):
    rank(1)
    ended_ranks.record_exit(0)
    ended_ranks.remove_file()
    ended_ranks.remove_file()
    assert not list(tmp_path.iterdir())
    assert ended_ranks.exit_statuses() == {}


def test_another_jobs_file_is_another_one(rank, monkeypatch):
    rank(1)
    ended_ranks.record_exit(0)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert ended_ranks.exit_statuses() == {}


def test_what_is_no_line_of_ours_is_passed_over(rank, tmp_path):
    rank(1)
    ended_ranks.record_exit(0)
    (path,) = tmp_path.iterdir()
    path.write_text("1 nothing\n")
    assert ended_ranks.exit_statuses() == {}


def test_the_end_of_a_spawned_rank_is_not_that_of_one_with_its_number(rank, monkeypatch):
    rank(1)
    monkeypatch.setenv("PMI_SPAWNED", "1")  # as MPICH's launcher does for MPI_Comm_spawn
    ended_ranks.record_exit(0)
    assert ended_ranks.exit_statuses() == {}
    monkeypatch.delenv("PMI_SPAWNED")
    assert ended_ranks.exit_statuses() == {}
