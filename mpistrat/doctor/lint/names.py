"""Follow names to what was imported: ``hvd.rank`` to ``horovod.tensorflow.rank``."""

from __future__ import annotations

import ast
import builtins

from mpistrat.doctor.lint.scopes import Bound, Scope, place, scopes_of

__all__ = ["Names"]

_DEEPEST = 20  # of aliases of aliases, which may go round in a circle
_IMPORTERS = ("importlib.import_module", "__import__")


class Names:
    """What each name of a program stands for, by Python's rules of scopes.

    Parameters
    ----------
    tree
        The program.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._scopes = scopes_of(tree)

    def path(self, node: ast.expr) -> str | None:
        """Return the dotted path of a name or attribute, or None where it was not imported."""
        return self._path(node, _DEEPEST)

    def value(self, node: ast.expr) -> ast.expr:
        """Return the expression that was assigned to a name, or the expression itself."""
        for _ in range(_DEEPEST):
            found = self._bound(node) if isinstance(node, ast.Name) else None
            if not isinstance(found, ast.expr):
                return node
            node = found
        return node

    def scope_of(self, node: ast.Name) -> Scope | None:
        """Return the scope in which the name is bound; None for builtins and the unknown."""
        own = scope = self._scopes.get(node)
        while scope is not None:
            if node.id in scope.bound and not (scope.is_class and scope is not own):
                return scope
            scope = scope.parent
        return None

    def is_inside(self, scope: Scope, function: ast.AST) -> bool:
        """Tell whether a scope belongs to a function, or to one within it."""
        outside = self._scopes[function]
        while scope is not outside and scope.parent is not None:
            scope = scope.parent
            if scope is outside:
                return True
        return False

    def _path(self, node: ast.expr, depth: int) -> str | None:
        if isinstance(node, ast.Attribute):
            above = self._path(node.value, depth)
            return f"{above}.{node.attr}" if above else None
        if isinstance(node, ast.Call):
            return self._imported(node, depth - 1) if depth else None
        if not isinstance(node, ast.Name) or not depth:
            return None
        found = self._bound(node)
        return self._path(found, depth - 1) if isinstance(found, ast.expr) else found

    def _imported(self, call: ast.Call, depth: int) -> str | None:
        """Return the module that a call of import_module names."""
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Constant) and self._path(call.func, depth) in _IMPORTERS:
            return str(given.value)
        return None

    def _bound(self, node: ast.Name) -> Bound:
        scope = self.scope_of(node)
        if scope is not None:
            return scope.value(node.id, place(node) if scope is self._scopes[node] else None)
        if hasattr(builtins, node.id):
            return node.id
        own = self._scopes.get(node)
        stars = own.module.stars if own else []
        return f"{stars[-1]}.{node.id}" if stars else None
