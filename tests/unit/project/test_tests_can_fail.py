"""Each test compares something: a function without an assertion could not fail.

A test may leave the comparison to a helper of its own file, of tests/helpers, of tests/gpu or of
mpistrat/testing that asserts, or to what is called ``check...`` and raises.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Where helpers are imported from.
PATHS = {"helpers": ROOT / "tests", "gpu": ROOT / "tests", "mpistrat.testing": ROOT}
FOLDERS = [ROOT / "tests", ROOT / "mpistrat" / "testing"]
FILES = sorted({file for folder in FOLDERS for file in folder.rglob("*.py")})
ASSERTIONS = {"raises", "warns", "deprecated_call", "fail"}  # of pytest


@cache
def tree_of(file):
    """Return the syntax tree of a file."""
    return ast.parse(file.read_text())


@cache
def parts_of(file):
    """Return all functions of a file, and all of its imports from modules."""
    kinds = (ast.FunctionDef, ast.ImportFrom)
    return [node for node in ast.walk(tree_of(file)) if isinstance(node, kinds)]


@cache
def helpers_of(file):
    """Return the helpers that functions of a file may call, with their files, by name."""
    found = {}
    for node in parts_of(file):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= imported(node)
    for node in tree_of(file).body:
        methods = node.body if isinstance(node, ast.ClassDef) else [node]
        found |= {one.name: (one, file) for one in methods if isinstance(one, ast.FunctionDef)}
    return found


def imported(node):
    """Return the helpers that one import brings, with their files, by name."""
    for package, root in PATHS.items():
        path = root / f"{node.module.replace('.', '/')}.py"
        if f"{node.module}.".startswith(f"{package}.") and path.exists():
            there = helpers_of(path)
            return {
                alias.asname or alias.name: there[alias.name]
                for alias in node.names
                if alias.name in there
            }
    return {}


def called(node):
    """Return the names of what a function uses, and of the methods of its own that it calls."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    owned = [n for n in attributes if isinstance(n.value, ast.Name)]
    return names | {n.attr for n in owned if n.value.id in {"self", "cls"}}


def asserts(node):
    """Tell whether a function compares by itself, or calls a method that is there for it."""
    if any(isinstance(n, ast.Assert) for n in ast.walk(node)):
        return True
    if any(isinstance(n, ast.Raise) for n in ast.walk(node)):
        return node.name.startswith(("test", "check", "_check"))
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    names = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
    return any(name in ASSERTIONS or name.startswith(("assert_", "check")) for name in names)


def can_fail(node, file, seen=frozenset()):
    """Tell whether a function compares, or calls a helper that does."""
    if asserts(node):
        return True
    helpers = helpers_of(file)
    return any(
        can_fail(*helpers[name], seen | {name})
        for name in (called(node) & helpers.keys()) - seen
        if helpers[name][0] is not node
    )


def find_tests(file):
    """Return the tests of a file, as nodes of its syntax tree."""
    functions = [node for node in parts_of(file) if isinstance(node, ast.FunctionDef)]
    return [one for one in functions if one.name.startswith("test_")]


# By their text: to parse all files takes seconds, and each pytest worker collects this file.
FILES_OF_TESTS = [file for file in FILES if "def test_" in file.read_text()]


@pytest.mark.parametrize("file", FILES_OF_TESTS, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_each_test_of_a_file_compares(file):
    assert [node.name for node in find_tests(file) if not can_fail(node, file)] == []


@pytest.mark.parametrize(
    ("text", "is_able"),
    [
        ("def test_a(): pass", False),
        ("def test_a():\n  '''Say something.'''", False),
        ("def test_a():\n  helper()\n\ndef helper():\n  return 1 == 2", False),
        ("def test_a():\n  helper()\n\ndef helper():\n  raise OSError", False),
        ("def test_a():\n  helper()\n\ndef helper():\n  assert 1", True),
        ("def test_a():\n  helper()\n\ndef helper():\n  f().check()", True),
        ("def test_a():\n  def body():\n    assert 1\n  run(body)", True),
        ("def test_a():\n  with pytest.raises(OSError): f()", True),
        ("def test_a():\n  np.testing.assert_allclose(f(), 1)", True),
    ],
)
def test_the_check_itself(text, is_able, tmp_path):
    file = tmp_path / "test_some.py"
    file.write_text(text)
    assert [can_fail(node, file) for node in find_tests(file)] == [is_able]
