"""Tell whether a program asks for Keras 2 in place of 3."""

from __future__ import annotations

import ast
from collections.abc import Mapping

__all__ = ["asks_for_keras_2", "imports"]

_VARIABLE = "TF_USE_LEGACY_KERAS"
_YES = ("1", "True", "true")
_MODULES = ("tf_keras",)


def asks_for_keras_2(tree: ast.Module, environment: Mapping[str, str]) -> bool:
    """Tell whether tf_keras is imported, or TF_USE_LEGACY_KERAS set, by the program or around."""
    return environment.get(_VARIABLE, "") in _YES or any(
        _sets_variable(node) or imports(node, _MODULES) for node in ast.walk(tree)
    )


def imports(node: ast.AST, modules: tuple[str, ...]) -> bool:
    """Tell whether a statement imports one of the modules, or from it."""
    if isinstance(node, ast.ImportFrom):
        names = [] if node.level else [node.module or ""]
    else:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return any(f"{name}.".startswith(f"{module}.") for name in names for module in modules)


def _sets_variable(node: ast.AST) -> bool:
    """Tell whether a statement sets the variable in os.environ."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        key, value = node.targets[0].slice, node.value
    elif isinstance(node, ast.Call) and len(node.args) == 2:  # os.putenv, setdefault
        key, value = node.args
    else:
        return False
    return _text(key) == _VARIABLE and _text(value) in _YES


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
