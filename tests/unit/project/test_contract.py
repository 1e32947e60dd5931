"""tests/CONTRACT.md and the tests that carry its numbers say the same."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import mpistrat

ROOT = Path(mpistrat.__file__).parents[1]
FOLDERS = {"strategies/": ROOT / "mpistrat" / "testing" / "strategies"}
FOLDERS["conformance/"] = ROOT / "tests" / "conformance"

BEHAVIOURS = [*range(1, 14), *range(20, 27), *range(30, 38), *range(40, 48), 50, 51]
BEHAVIOURS += [*range(60, 71), 80, *range(82, 94), 95, *range(110, 114)]
EXAMPLES = [*range(1, 16), 17, 18, 19, 20, 22, 23, 26, 27, 29]
NUMBERS = {f"B{number}" for number in BEHAVIOURS} | {f"E{number}" for number in EXAMPLES}


@cache
def numbered_tests() -> dict[str, set[str]]:
    """Return ``file::test`` of every test that carries a number, by that number."""
    found: dict[str, set[str]] = {}
    files = [(p, folder, file) for p, folder in FOLDERS.items() for file in folder.rglob("*.py")]
    for prefix, folder, file in sorted(files):
        path = f"{prefix}{file.relative_to(folder).as_posix()}"
        for node in ast.walk(ast.parse(file.read_text())):
            name = node.name if isinstance(node, ast.FunctionDef) else ""
            carried = re.match(r"test_([be])(\d+)_", name)
            if carried:
                number = f"{carried[1].upper()}{int(carried[2])}"
                found.setdefault(number, set()).add(f"{path}::{name}")
    return found


@cache
def listed() -> dict[str, str]:
    """Return the last column of every row of the contract, by its number."""
    text = (ROOT / "tests" / "CONTRACT.md").read_text()
    rows = re.findall(r"^\| ([BE]\d+) \| .+ \| (\S.*) \|$", text, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a number has two rows"
    return dict(rows)


def test_every_number_has_a_row() -> None:
    assert set(listed()) == NUMBERS


@pytest.mark.parametrize("number", sorted(NUMBERS))
def test_what_is_listed_is_tested(number: str) -> None:
    last, tests = listed()[number], numbered_tests().get(number, set())
    if last == "TF":
        assert not tests, "tested after all: name the test"
    else:
        assert last.strip("`") in tests


def test_what_is_tested_is_listed() -> None:
    assert set(numbered_tests()) <= set(listed())


@cache
def numbered_tests_of_tensorflow() -> dict[str, set[str]]:
    """Return those of TensorFlow's own strategies, whose names may carry several numbers."""
    found: dict[str, set[str]] = {}
    folder = ROOT / "tests" / "tf"
    for file in sorted([*folder.glob("servers/test_*.py"), *folder.glob("tpu/test_*.py")]):
        path = file.relative_to(folder).as_posix()
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE):
            carried = re.match(r"test((?:_[be]\d+[a-d]?)+)_", name)
            for number in re.findall(r"[be]\d+[a-d]?", carried[1]) if carried else ():
                found.setdefault(number.capitalize(), set()).add(f"{path}::{name}")
    return found


def test_rows_of_tensorflow_and_its_tests() -> None:
    text = (ROOT / "tests" / "CONTRACT.md").read_text()
    rows = re.findall(r"^\| ([BE]\d+[a-d]?) TF \| .+ \| `(\S+)` \|$", text, re.MULTILINE)
    tests = numbered_tests_of_tensorflow()
    assert len(rows) == len(dict(rows)), "a number has two rows"
    assert set(dict(rows)) == set(tests)
    for number, test in rows:
        assert test in tests[number]
