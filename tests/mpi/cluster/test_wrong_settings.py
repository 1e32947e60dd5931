"""A wrong setting ends the job at once, on each rank with one error that names it."""

import pytest

from mpistrat.testing.launcher import run_job

PROGRAM = "import mpistrat; mpistrat.MirroredStrategy()"
WRONG = [
    ("MPISTRAT_ALLOW_SINGLETON", "yes"),
    ("MPISTRAT_BACKEND", "foo"),
    ("MPISTRAT_GRACE", "-2"),
    ("MPISTRAT_LOG", "loud"),
    ("MPISTRAT_LOG_RANKS", "9"),
    ("MPISTRAT_RECORDS", "999999999999"),
    ("MPISTRAT_RECORDS", "abc"),
    ("MPISTRAT_TIMEOUT", "abc"),  # needed while MPI starts
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_settings_end_the_job_with_one_error_on_each_rank(name: str, value: str) -> None:
    # So long that a job which waits for its end does not end within the limit.
    grace = {} if name == "MPISTRAT_GRACE" else {"MPISTRAT_GRACE": "60"}
    result = run_job(["-c", PROGRAM], 2, timeout_s=30, env={**grace, name: value})
    assert not result.timed_out
    assert result.returncode == 1, result.output
    for rank in result.ranks:
        assert rank.stderr.count(f"{name}='{value}'") == 1, rank.stderr
        assert "unset it or fix it" in rank.stderr
    assert "BAD TERMINATION" not in result.output


@pytest.mark.parametrize("name", ["BACKEND", "LOG", "LOG_RANKS", "TIMEOUT", "ALLOW_SINGLETON"])
def test_empty_settings_are_unset_ones(name: str) -> None:
    run_job(["-c", PROGRAM], 2, timeout_s=30, env={f"MPISTRAT_{name}": ""}).check()


LATE = """
import time
import mpistrat
from mpistrat.collectives.checking import settings_check
from mpistrat.testing.launching.rank import rank_from_environment

read = settings_check.facts

def read_late(address):
    time.sleep(rank_from_environment())
    return read(address)

settings_check.facts = read_late
mpistrat.MirroredStrategy()
"""


def test_a_wrong_timeout_is_told_once_where_another_rank_is_late() -> None:
    env = {"MPISTRAT_GRACE": "60", "MPISTRAT_TIMEOUT": "abc"}
    result = run_job(["-c", LATE], 2, timeout_s=30, env=env)
    assert result.returncode == 1, result.output
    for rank in result.ranks:
        assert rank.stderr.count("MPISTRAT_TIMEOUT='abc'") == 1, rank.stderr
