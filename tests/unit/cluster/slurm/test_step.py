"""The variables of a Slurm step: whether this is a task of one, and what lacks."""

import os

import pytest

from mpistrat.cluster.slurm import step
from mpistrat.doctor.job.launcher import of_environment

STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_GTIDS": "2,3",
}


@pytest.fixture
def setenv(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


def test_a_task(setenv):
    setenv(STEP)
    assert step.is_inside()
    assert step.identity() == {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}
    assert step.missing() == []
    assert step.local_size() == ("SLURM_GTIDS", 2)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
        # The shell of salloc, where the site starts it on a node, and what it starts.
        STEP | {"SLURM_STEP_ID": "4294967290"},
        STEP | {"SLURM_STEP_ID": "4294967291"},
    ],
    ids=["no Slurm", "batch script", "shell of salloc", "batch step"],
)
def test_no_task(setenv, variables):
    setenv(variables)
    assert not step.is_inside()
    assert step.identity() == {}
    assert step.missing() == []
    assert of_environment(os.environ).kind == "alone"  # to the doctor


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"])
@pytest.mark.parametrize("value", [None, "", "x", "-1"])
def test_what_lacks_is_named(setenv, monkeypatch, name, value):
    setenv(STEP)
    monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    assert step.missing() == [name]


def test_the_size_has_two_names(setenv, monkeypatch):
    setenv(STEP | {"SLURM_NTASKS": "4"})
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS")
    assert step.missing() == []
    monkeypatch.delenv("SLURM_NTASKS")
    assert step.missing() == ["SLURM_STEP_NUM_TASKS"]
