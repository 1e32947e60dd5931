"""Environment variables add the tests that take long, and those that repeat others."""

import pytest

from mpistrat.errors import UsageError
from mpistrat.testing.placement import placement, repeats, slower, takes_long

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


@pytest.mark.deadline(7)
def test_deadlines_are_multiplied(request, monkeypatch):
    monkeypatch.delenv("MPISTRAT_TESTS_SLOWER", raising=False)
    assert placement(request.node).timeout_s == 7
    monkeypatch.setenv("MPISTRAT_TESTS_SLOWER", "2.5")
    assert placement(request.node).timeout_s == 17.5


@pytest.mark.parametrize("text", ["0.5", "fast", "inf", "nan"])
def test_deadlines_do_not_shrink(text):
    # Set back at once: the plugin reads it for this test, too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPISTRAT_TESTS_SLOWER", text)
        with pytest.raises(UsageError, match="expected a number, 1 or more"):
            slower()
