"""Each promise of tests/CONTRACT.md has the test that it names, and each numbered test a promise.

That such a test compares something, test_tests_can_fail.py sees to.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import mpistrat

ROOT = Path(mpistrat.__file__).parents[1]
FOLDERS = {"strategies/": ROOT / "mpistrat" / "testing" / "strategies"}
FOLDERS["conformance/"] = ROOT / "tests" / "conformance"

ROWS = re.findall(
    r"^\| ([BE]\d+) \| .+ \| (\S.*) \|$",
    (ROOT / "tests" / "CONTRACT.md").read_text(),
    re.MULTILINE,
)


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


def test_the_rows_are_in_order() -> None:
    for letter in "BE":
        numbers = [int(number[1:]) for number, _ in ROWS if number[0] == letter]
        assert numbers
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(("number", "last"), ROWS)
def test_what_is_listed_is_tested(number: str, last: str) -> None:
    tests = numbered_tests().get(number, set())
    if last == "TF":
        assert not tests, "tested after all: name the test"
    else:
        assert last.strip("`") in tests


def test_what_is_tested_is_listed() -> None:
    assert numbered_tests().keys() <= dict(ROWS).keys()


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
