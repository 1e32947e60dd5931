"""Note what each name of a program is bound to, scope by scope: imports and assignments."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

__all__ = ["Bound", "Place", "Scope", "place", "scopes_of"]

# A dotted path that was imported, an expression that was assigned, or None for the rest.
Bound = str | ast.expr | None
Place = tuple[int, int]  # a line and a column


@dataclass(eq=False)
class Scope:
    """The names that a module, class or function binds.

    Attributes
    ----------
    parent
        The scope around it, where there is one.
    is_class
        Whether it is a class: functions within do not see its names.
    bound
        The values of each name, with the places from which it has them.
    stars
        Modules whose names were all imported.
    """

    parent: Scope | None = None
    is_class: bool = False
    bound: dict[str, list[tuple[Place, Bound]]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    globals: set[str] = field(default_factory=set)

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        return self if self.parent is None else self.parent.module

    def bind(self, name: str, begin: Place, value: Bound) -> None:
        """Note a value of a name."""
        scope = self.module if name in self.globals else self
        scope.bound.setdefault(name, []).append((begin, value))

    def value(self, name: str, at: Place | None) -> Bound:
        """Return what a name is at a place; None as the place: when all of the scope has run."""
        # None in place of a module is what a program says where an import has failed.
        places = [one for one in self.bound[name] if not _is_none(one[1])] or self.bound[name]
        before = [one for one in places if at is None or one[0] <= at]
        return (before or places)[-1][1]


def place(node: ast.AST, is_end: bool = False) -> Place:
    """Return where a part of a program begins, or ends."""
    end = "end_" if is_end else ""
    return getattr(node, f"{end}lineno", 0), getattr(node, f"{end}col_offset", 0)


def scopes_of(tree: ast.Module) -> dict[ast.AST, Scope]:
    """Return the scope that each node of a program is in."""
    binder = _Binder()
    binder.visit(tree)
    return binder.scopes


class _Binder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.scopes: dict[ast.AST, Scope] = {}
        self._scope = Scope()

    def visit(self, node: ast.AST) -> None:
        self.scopes[node] = self._scope
        super().visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self._bind(alias.asname or first, node, alias.name if alias.asname else first)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            return  # a module of the program's own
        for alias in node.names:
            if alias.name == "*":
                self._scope.stars.append(node.module)
            else:
                self._bind(alias.asname or alias.name, node, f"{node.module}.{alias.name}")

    def visit_Global(self, node: ast.Global) -> None:
        self._scope.globals.update(node.names)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assign(node.target, node.value)
        if node.value:
            self.visit(node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign(node.target, node.value)
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, node, None)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name, node, None)
        self._each(*node.decorator_list, *node.bases, *node.keywords)
        self._within(Scope(self._scope, is_class=True), *node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, node, None)
        self._each(*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults))
        self._within(Scope(self._scope), *_parameters(node.args), *node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._each(*node.args.defaults, *filter(None, node.args.kw_defaults))
        self._within(Scope(self._scope), *_parameters(node.args), node.body)

    def visit_arg(self, node: ast.arg) -> None:
        self._bind(node.arg, node, None)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def _comprehension(self, node: ast.AST) -> None:
        self._within(Scope(self._scope), *ast.iter_child_nodes(node))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        """Bind a name to its value; parts of a tuple, and targets that are no names, to None."""
        if isinstance(target, ast.Name):
            self.scopes[target] = self._scope
            if value is not None:
                self._bind(target.id, target, value)
        else:
            self.visit(target)

    def _bind(self, name: str, node: ast.AST, value: Bound) -> None:
        # Within the value that is assigned, the name still has the one before.
        begin = place(value, is_end=True) if isinstance(value, ast.expr) else place(node)
        self._scope.bind(name, begin, value)

    def _each(self, *nodes: ast.AST) -> None:
        for node in nodes:
            self.visit(node)

    def _within(self, scope: Scope, *nodes: ast.AST) -> None:
        outer, self._scope = self._scope, scope
        self._each(*nodes)
        self._scope = outer


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    rest = filter(None, (arguments.vararg, arguments.kwarg))
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _is_none(value: Bound) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
