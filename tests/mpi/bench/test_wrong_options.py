"""Options of cases that cannot be followed are one line of one rank, before anything is timed."""

import pytest

from mpistrat.testing.launcher import run_job

pytest.importorskip("typer")

COLLECTIVES = ["-m", "mpistrat", "bench", "collectives"]
WRONG = {
    "a backend": (["--backends", "nosuch"], "'nosuch' is not known; expected auto, "),
    "too many bytes": (["--bytes", "1TiB"], "pass fewer --bytes"),
    "no folder": (["--json", "/nonexist/x"], "there is no folder /nonexist; make it first"),
    "a folder": (["--json", "/tmp"], "it is a folder; expected a file"),
    "an operation": (["--ops", "nosuch"], "op 'nosuch' is not known"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_one_line_of_one_rank(name: str) -> None:
    options, said = WRONG[name]
    result = run_job([*COLLECTIVES, *options], 2, timeout_s=40)
    assert result.returncode == 2, result.output
    assert result.ranks[0].stdout == ""
    (line,) = result.ranks[0].stderr.splitlines()
    assert line.startswith("mpistrat bench: ")
    assert said in line
    assert result.ranks[1].text == ""
