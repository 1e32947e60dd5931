"""The deadline follows from when a signal came, how long before the end it does, and Slurm."""

import re
import signal

import pytest

from mpistrat.errors import UsageError
from mpistrat.preemption.time_left import leads_of

CAME = 1_800_000_000.0


@pytest.fixture(autouse=True)
def outside_of_slurm(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    monkeypatch.delenv("MPISTRAT_SIGNAL_LEAD", raising=False)


def left(given, number=signal.SIGUSR1):
    return leads_of(given).deadline(number, CAME) - CAME


def test_by_default():
    assert left(None) == 300 - 15
    assert left(None, signal.SIGTERM) == 30 - 3
    assert left(None, 0) == 300 - 15


def test_a_tenth_is_left_to_the_script_from_1_to_15_seconds():
    for lead_s, reserve_s in ((5, 1), (60, 6), (100, 10), (1000, 15)):
        assert left(lead_s) == pytest.approx(lead_s - reserve_s)


def test_the_template_says_how_long(monkeypatch):
    monkeypatch.setenv("MPISTRAT_SIGNAL_LEAD", "120")
    assert left(None) == 120 - 12
    monkeypatch.setenv("MPISTRAT_SIGNAL_LEAD", "20")
    assert left(None, signal.SIGTERM) == 20 - 2


def test_the_program_says_how_long():
    assert left(60, signal.SIGTERM) == 54
    assert left({signal.SIGTERM: 60}, signal.SIGTERM) == 54
    assert left({signal.SIGTERM: 60}) == 285


@pytest.mark.parametrize(("end", "seconds"), [(100, 85), (400, 285), (-5, 285)])
def test_the_nearer_end_counts(monkeypatch, end, seconds):
    """Slurm's time limit, or the lead; a limit that is over says nothing of a time of grace."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(CAME) + end))
    assert left(None) == seconds


def test_it_is_never_before_the_signal(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(CAME) + 4))
    assert left(None) == 0


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "60", {signal.SIGTERM: 0}])
def test_a_wrong_lead(wrong):
    with pytest.raises(UsageError, match=re.escape("expected seconds above 0 between a signal")):
        leads_of(wrong)
