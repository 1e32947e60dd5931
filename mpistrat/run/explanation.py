"""Tell what an unchanged program got of this package, and what it imports past it."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mpistrat.cluster.resolvers.tf_config_of_ranks import VARIABLE, current, describe
from mpistrat.system.log import get_logger

__all__ = ["note_without_strategy", "private_imports", "show", "warn_of_private_imports"]

_LOG = get_logger(__name__)
_PRIVATE = "tensorflow.python.distribute"


def private_imports(source: bytes | str) -> list[tuple[int, str]]:
    """Return the lines of a program that import TensorFlow's strategies past its public API."""
    try:
        nodes = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError):  # Python says so when the program is run
        return []
    found = [(node.lineno, name) for node in nodes for name in _imported(node)]  # type: ignore[attr-defined]
    return sorted({one for one in found if one[1].startswith(_PRIVATE)})


def _imported(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{one.name}" for one in node.names]
    return []


def warn_of_private_imports(source: bytes | str, file: str) -> None:
    """Warn on rank 0 about what a program gets from TensorFlow itself. **Local.**"""
    for line, name in private_imports(source):
        _LOG.warning(
            "%s:%d imports %s: TensorFlow's own, which knows nothing of the ranks; use"
            " tf.distribute there",
            *(file, line, name),
        )


def note_without_strategy() -> None:
    """Warn on rank 0 of several if TensorFlow was used, but no strategy. **Local.**"""
    size = current().topology.size
    if size > 1 and "tensorflow" in sys.modules and not _uses():
        _LOG.warning(
            "the program used no strategy of tf.distribute: each of the %d ranks ran all of it,"
            " and none knew of the others",
            size,
        )


def show() -> None:
    """Write to rank 0's standard error what was exchanged and where. **Local.**"""
    if current().is_chief:
        sys.stderr.write("\n".join([*_lines(), ""]))


def _lines() -> list[str]:
    topology = current().topology
    lines = [f"mpistrat run: rank 0 of {topology.size}"]
    lines.append(f"  TF_CONFIG: {describe(os.environ.get(VARIABLE, ''))}")
    lines += [
        f"  {_short(use.file)}:{use.line}: {use.name} is {use.ours.replace(':', '.')}"
        for use in _uses()
    ]
    if not _uses():
        lines.append("  nothing was exchanged: the program used none of the names")
    for file in _program_files():
        for line, name in private_imports(Path(file).read_bytes()):
            lines.append(f"  {_short(file)}:{line}: {name} is TensorFlow's own")
    return lines


def _uses() -> list[Any]:
    module: Any = sys.modules.get("mpistrat.tensorflow.unchanged_programs.uses")
    return [] if module is None else module.found()


def _program_files() -> list[str]:
    """Return the files of the program's modules: those below the folder of its main file."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:
        return []
    folder = os.path.dirname(os.path.abspath(main)) + os.sep
    files = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
    mine = {file for file in files if file.startswith(folder) and file.endswith(".py")}
    return sorted(file for file in mine if "site-packages" not in file and os.path.isfile(file))


def _short(file: str) -> str:
    near = os.path.relpath(file)
    return file if near.startswith(os.pardir) else near
