"""The table of docs/settings.md: the variables and defaults of mpistrat/config.py."""

import re
from pathlib import Path

import pytest

from mpistrat import config
from mpistrat.collectives.backends.registry import available_backends

PAGE = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
ROW = re.compile(r"^\| `(\w+)`( \*)? \| (\S*) ?\| (.+) \|$", re.MULTILINE)
ROWS = {name: (bool(star), default) for name, star, default, _ in ROW.findall(PAGE)}
TABLE = re.findall(r"^(MPISTRAT_.{15}) (.{11})", config.__doc__, re.MULTILINE)
SET_BY_RANKS = "MPISTRAT_RANK_PROCESS"


def test_all_variables_have_their_defaults() -> None:
    wanted = {name.strip(): default.strip() for name, default in TABLE}
    wanted.pop(SET_BY_RANKS)
    assert {name: default for name, (_, default) in ROWS.items()} == wanted
    assert SET_BY_RANKS in PAGE


def test_those_that_must_agree_are_marked() -> None:
    assert {name for name, (is_marked, _) in ROWS.items() if is_marked} == set(config.AGREED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MPISTRAT_TIMEOUT", config.DEFAULT_TIMEOUT_S),
        ("MPISTRAT_GRACE", config.DEFAULT_GRACE_S),
        ("MPISTRAT_FUSION_BYTES", config.DEFAULT_FUSION_BYTES),
        ("MPISTRAT_RECORDS", config.DEFAULT_RECORDS),
        ("MPISTRAT_COMPILE_TIMEOUT", config.DEFAULT_COMPILE_TIMEOUT_S),
        ("MPISTRAT_SIGNAL_LEAD", config.DEFAULT_SIGNAL_LEAD_S),
    ],
)
def test_numbers_are_those_of_the_code(name: str, value: float) -> None:
    assert float(ROWS[name][1]) == value


def test_backends_are_known() -> None:
    (line,) = (line for line in PAGE.splitlines() if "`MPISTRAT_BACKEND`" in line)
    named = set(re.findall(r"`(\w+)`", line.split("|")[3]))
    assert named
    assert named <= {"auto", *available_backends()}
