"""Environment variables add the tests that take long, and those that repeat others."""

import pytest

from mpistrat.testing.placement import repeats, takes_long

VARIABLES = ("MPISTRAT_TESTS_LONG", "MPISTRAT_TESTS_ALL")


@pytest.mark.parametrize(
    ("setting", "long_ones_run", "repeats_run"),
    [
        ({}, False, False),
        ({"MPISTRAT_TESTS_LONG": "0", "MPISTRAT_TESTS_ALL": "0"}, False, False),
        ({"MPISTRAT_TESTS_LONG": "1"}, True, False),
        ({"MPISTRAT_TESTS_ALL": "1"}, True, True),
    ],
    ids=str,
)
def test_the_environment_says_which_tests_run(setting, long_ones_run, repeats_run, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    assert takes_long().args == (not long_ones_run,)
    assert repeats().args == (not repeats_run,)
    assert "MPISTRAT_TESTS_LONG=1" in takes_long().kwargs["reason"]
    assert "MPISTRAT_TESTS_ALL=1" in repeats().kwargs["reason"]
