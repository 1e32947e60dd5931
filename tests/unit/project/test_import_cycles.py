"""No cycle of imports in the package is longer than 3 files, those within functions counted.

import-linter looks at the layers between packages; a cycle within one, by imports in functions,
it does not see. Imports for types alone (``if TYPE_CHECKING``) do not count.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import mpistrat

_ROOT = Path(mpistrat.__file__).parent
_MOST = 3

Graph = dict[str, set[str]]


def test_cycles_are_short() -> None:
    graph = import_graph(_ROOT)
    assert len(graph) > 300  # it has found the package
    long = [sorted(cycle) for cycle in cycles(graph) if len(cycle) > _MOST]
    assert not long, "\n".join(f"{len(cycle)} files import each other: {cycle}" for cycle in long)


def test_imports_within_functions_are_seen(tmp_path: Path) -> None:
    package = tmp_path / "some"
    (package / "inner").mkdir(parents=True)
    sources = {
        "__init__": "",
        "inner/__init__": "from some import top",
        "top": "def f():\n    from some.inner import low",
        "inner/low": "def f():\n    import some.middle",
        "middle": "from typing import TYPE_CHECKING\nfrom some.top import f\nimport os",
        "types": "if TYPE_CHECKING:\n    from some import typed\nelse:\n    import some.top",
        "typed": "from some import types",
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    graph = import_graph(package)
    assert graph["some.types"] == {"some.top"}
    assert cycles(graph) == [{"some.top", "some.inner.low", "some.middle"}]


def import_graph(root: Path) -> Graph:
    """Return which modules of a package each of its modules imports, anywhere in its file."""
    files = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: set(_imported_of(files, path)) for name, path in files.items()}


def _imported_of(files: dict[str, Path], path: Path) -> Iterator[str]:
    for name in _imported(ast.parse(path.read_text())):
        # The module itself, or the one that a name is a member of.
        yield from [one for one in (name, name.rpartition(".")[0]) if one in files][:1]


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield the full names that the code under `node` imports; relative imports are banned."""
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{one.name}" for one in node.names)
    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for child in node.orelse if is_for_types else ast.iter_child_nodes(node):
        yield from _imported(child)


def cycles(graph: Graph) -> list[set[str]]:
    """Return the sets of modules that can all be reached from each other, largest first."""
    reached = {name: _reached(graph, name) for name in graph}
    found = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return sorted(map(set, found), key=len, reverse=True)


def _reached(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found
