"""The tables of docs/compatibility.md: each row has a test that exists, and that is run by CI."""

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "compatibility.md"
HEADING = ["program or feature", "works", "how, or why not", "test"]
WORKS = {"yes", "differs", "error"}


def rows():
    """Return the cells of each row of the tables, without their headings."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row != HEADING]


@functools.cache
def names_of_tests(file):
    """Return the names of the tests of a file that no decorator leaves out of CI."""
    tree = ast.parse((ROOT / file).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {one.name for one in functions if not any(map(is_left_out, one.decorator_list))}


def is_left_out(decorator):
    text = ast.unparse(decorator)
    return "mark.skip" in text or "xfail" in text


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_has_a_test(row):
    assert len(row) == 4
    _, works, how, test = row
    assert works in WORKS
    assert how
    file, name = test.split("::")
    assert name.startswith("test_")
    assert name in names_of_tests(file)


def test_the_tables_are_not_empty():
    assert len(rows()) > 40
