"""The name by which the ranks of a job and node meet before MPI starts."""

import os
from types import SimpleNamespace

import pytest

from mpistrat.cluster import report_once

JOBS = {
    "another container": ("1", 500, "pid:[4026532000]"),
    "another process of that number": ("1", 501, "pid:[4026531836]"),
    "another parent": ("2", 500, "pid:[4026531836]"),
}


def name_of(monkeypatch, parent, start, namespace, environment=None):
    monkeypatch.setattr(os, "getppid", lambda: int(parent))
    monkeypatch.setattr(os, "readlink", lambda path: namespace)
    status = SimpleNamespace(start=start)
    monkeypatch.setattr(report_once.process_status, "read", lambda pid: status)
    return report_once._name(environment or {})


@pytest.mark.parametrize("other", JOBS)
def test_jobs_without_a_name_are_told_apart_by_their_parent(monkeypatch, other):
    mine = name_of(monkeypatch, "1", 500, "pid:[4026531836]")
    assert name_of(monkeypatch, *JOBS[other]) != mine
    assert name_of(monkeypatch, "1", 500, "pid:[4026531836]") == mine


def test_ranks_of_a_named_job_meet_wherever_they_are(monkeypatch):
    environment = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    names = {name_of(monkeypatch, *one, environment) for one in JOBS.values()}
    assert len(names) == 1


def test_without_proc_the_number_of_the_parent_counts(monkeypatch):
    def refuse(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", refuse)
    assert str(os.getppid()) in report_once._name({})
