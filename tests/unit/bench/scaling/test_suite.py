"""Suites: those of the package are right, and a mistake in one is named."""

from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("typer")

from mpistrat.bench.scaling.suite import read_suite, shipped_suites
from mpistrat.errors import UsageError

SUITE = """
title = "mine"
ranks = [2, 4]
repeats = 5
[[run]]
case = "collectives"
options = { ops = "bcast", seconds = 0.5, rounds = 7, new = true, in-place = false }
[[run]]
case = "step"
nodes = [1, 2]
timeout_s = 7.5
"""


def written(folder: Path, text: str) -> str:
    file = folder / "suite.toml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("name", shipped_suites())
def test_the_suites_of_the_package(name: str) -> None:
    suite = read_suite(name)
    assert suite.title
    assert suite.run


def test_a_suite_of_the_users(tmp_path: Path) -> None:
    suite = read_suite(written(tmp_path, SUITE))
    assert (suite.title, suite.ranks, suite.repeats, suite.nodes) == ("mine", (2, 4), 5, None)
    first, second = suite.run
    assert first.options["in-place"] is False
    assert (second.nodes, second.timeout_s, second.options) == ((1, 2), 7.5, {})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("title =", "tilte =", "tilte: Extra inputs are not permitted; got 'mine'"),
        ("[2, 4]", "[2, 0]", r"ranks\.1: .*greater than or equal to 1; got 0"),
        ("[2, 4]", "[]", "ranks: .*at least 1 item"),
        ("repeats = 5", "repeats = 0", "repeats: .*greater than or equal to 1"),
        ('"step"', '"stepp"', "case 'stepp' is not known; did you mean 'step"),
        (
            "rounds",
            "round",
            "case collectives: option 'round' is not known; did you mean 'rounds'",
        ),
        ("new = true", "new = 1", "option 'new': got 1, expected true or false"),
        ('"bcast"', "true", "option 'ops': got True, expected a number or a text"),
        ("rounds = 7", 'json = "a"', "option 'json' is not known"),
        ("title", "[[", "suite.toml: .*expected a suite in TOML"),
        ("[[run]]", "[[runs]]", "runs: Extra inputs"),
        ("rounds = 7", "rounds = -7", "case collectives: .*'--rounds'"),
        ("0.5", '"soon"', "case collectives: .*'--seconds'"),
        ('"bcast"', '""', "option 'ops': got '', expected a text"),
        ('"bcast"', r'"a\u0000b"', "option 'ops': got .*, expected a text"),
        ("[2, 4]", "[true]", r"ranks\.0: .*valid integer"),
        ("repeats = 5", "repeats = 1000000000", "repeats: .*less than or equal to 1000"),
        ("7.5", "-1", r"run\.1\.timeout_s: .*greater than 0"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, before: str, after: str, words: str) -> None:
    assert before in SUITE
    with pytest.raises(UsageError, match=words):
        read_suite(written(tmp_path, SUITE.replace(before, after)))


def test_a_suite_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no suite is named 'quik'; did you mean 'quick'"):
        read_suite("quik")
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read"):
        read_suite(str(tmp_path / "none.toml"))
