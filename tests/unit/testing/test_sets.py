"""Environment variables add tests that take long, or a part of them, and those that repeat."""

import re

import pytest

from mpistrat.errors import UsageError
from mpistrat.testing.sets import is_left_out, part_of_long, takes_long

TESTS = """
import pytest
from mpistrat.testing.sets import repeats, takes_long

class Layout:
    takes_long = True

def test_short(): pass

@takes_long(unit="case")
@pytest.mark.parametrize("case", range(40))
def test_long(case): pass

@takes_long()
@pytest.mark.parametrize("case", range(9))
def test_fixture(case): pass

@pytest.mark.parametrize("case", [1, pytest.param(2, marks=takes_long()), Layout()])
def test_cases(case): pass

@repeats()
def test_repeat(): pass
"""


def run(inner, monkeypatch, **environment):
    """Return the names of the tests that ran, and pytest's output."""
    for name in ("MPISTRAT_TESTS_LONG", "MPISTRAT_TESTS_ALL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(f"MPISTRAT_TESTS_{name}", value)
    inner.makepyfile(TESTS)
    result = inner.runpytest_subprocess("-v", "-rs", "-p", "no:xdist", "--strict-markers")
    text = result.stdout.str()
    return set(re.findall(r"::(\S+) PASSED", text)), text


SHORT = {"test_short", "test_cases[1]"}
FIXTURE = {f"test_fixture[{case}]" for case in range(9)}
CASES = {"test_cases[2]", "test_cases[case2]"}
LONG = FIXTURE | CASES | {f"test_long[{case}]" for case in range(40)}


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({"LONG": "0"}, SHORT),
        ({"LONG": "1"}, SHORT | LONG),
        pytest.param(
            {"ALL": "1", "LONG": "2/5"}, {*SHORT, *LONG, "test_repeat"}, marks=takes_long()
        ),
    ],
    ids=["short", "long", "all"],
)
def test_the_environment_says_which_tests_run(environment, want, inner, monkeypatch):
    ran, text = run(inner, monkeypatch, **environment)
    assert ran == want
    told = "left out: 51 tests that take long; MPISTRAT_TESTS_LONG=1 runs all"
    assert (told in text) == (ran == SHORT)
    assert ("repeats; MPISTRAT_TESTS_ALL=1 runs it" in text) == ("test_repeat" not in ran)


@pytest.mark.parametrize(
    "options", [["-p", "no:xdist"], pytest.param(["-n", "2"], marks=takes_long())]
)
def test_to_leave_out_all_of_a_run_is_no_failure(options, inner, monkeypatch):
    monkeypatch.setenv("MPISTRAT_TESTS_LONG", "0")
    inner.makepyfile(TESTS)
    result = inner.runpytest_subprocess("-q", *options, "-k", "test_fixture")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["left out: 9 tests that take long; MPISTRAT_TESTS_LONG=1 runs*"])
    none = inner.runpytest_subprocess("-q", *options, "-k", "no_such_test")
    assert none.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "left out" not in none.stdout.str()


@takes_long()
def test_each_long_test_is_in_one_part(inner, monkeypatch):
    parts = [run(inner, monkeypatch, LONG=f"{part}/3") for part in (1, 2, 3)]
    long_ones = [ran - SHORT for ran, _ in parts]
    assert all(ran >= SHORT for ran, _ in parts)
    assert all(5 <= len(ran - FIXTURE) <= 25 for ran in long_ones)  # of 42
    assert [ran & FIXTURE for ran in long_ones if ran & FIXTURE] == [FIXTURE]
    assert sorted(name for ran in long_ones for name in ran) == sorted(LONG)
    assert "tests that take long, part 2 of 3 ran; MPISTRAT_TESTS_LONG=1" in parts[1][1]


@pytest.mark.parametrize(
    "text", ["yes", "2", "0/3", "4/3", "1/0", "1/2/3", "-1/3", "1/99999", " 1"]
)
def test_other_texts_are_refused(text, request):
    # Set back at once: the plugin reads it for this test, too.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MPISTRAT_TESTS_ALL", raising=False)
        patch.setenv("MPISTRAT_TESTS_LONG", text)
        with pytest.raises(UsageError, match="expected 1 for all tests that take long, 0"):
            is_left_out(request.node)
        with pytest.raises(UsageError):
            part_of_long()


@takes_long()
def test_a_mark_that_names_no_parameter_is_refused(inner, monkeypatch):
    monkeypatch.setenv("MPISTRAT_TESTS_LONG", "0")
    inner.makepyfile(TESTS.replace('unit="case"', 'unit="kase"'))
    result = inner.runpytest_subprocess("-q")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*takes_long(unit='kase'); expected 'test', 'file' or*: case"])


@takes_long()
def test_a_run_that_asks_for_what_there_is_not_ends_at_once(inner, monkeypatch):
    monkeypatch.delenv("MPISTRAT_TESTS_ALL", raising=False)
    monkeypatch.setenv("MPISTRAT_TESTS_LONG", "some")
    result = inner.runpytest_subprocess("-q")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*MPISTRAT_TESTS_LONG='some': expected 1 for all tests that*"])
