"""Find a program's collectives, its `tf.function`s, and what depends on the rank, for rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.program import Program
from mpistrat.doctor.lint.uses import Use

__all__ = ["COLLECTIVES", "collectives", "depends_on_rank", "first_argument", "graph_function"]

COLLECTIVES = (
    *("allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "alltoall"),
    *("reducescatter", "grouped_reducescatter", "broadcast", "broadcast_", "join"),
    *("broadcast_variables", "broadcast_object", "allgather_object"),
)
_RANKS = ("rank", "local_rank", "cross_rank")
_DEEPEST = 5  # of names that were assigned from names
_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def collectives(program: Program, *above: ast.AST) -> Iterator[tuple[Use, ast.Call]]:
    """Yield the calls of collectives, in the order of the source; only those in nodes if given."""
    inside = {node for one in above for node in ast.walk(one)} if above else None
    for use, call in program.called(*COLLECTIVES):
        if inside is None or call in inside:
            yield use, call


def first_argument(call: ast.Call, name: str = "tensor") -> ast.expr | None:
    """Return the argument that a collective is about."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return call.args[0] if call.args else named.get(name) or named.get("value")


def depends_on_rank(program: Program, node: ast.AST, depth: int = _DEEPEST) -> bool:
    """Tell whether a value differs by rank: it is made from ``hvd.rank()`` or the like."""
    ranks = {call for _, call in program.called(*_RANKS)}
    for part in ast.walk(node):
        if part in ranks:
            return True
        if isinstance(part, ast.Name) and depth:
            value = program.names.value(part)
            if value is not part and depends_on_rank(program, value, depth - 1):
                return True
    return False


def graph_function(program: Program, node: ast.AST) -> tuple[ast.AST, ast.Call | None] | None:
    """Return the innermost ``tf.function`` that a node is in, and the call of it with options."""
    for function in program.functions(node):
        for made, call in _made_by(program, function):
            if program.names.path(made) == "tensorflow.function":
                return function, call
    return None


def _made_by(program: Program, function: ast.AST) -> Iterator[tuple[ast.expr, ast.Call | None]]:
    """Yield what a function is decorated with, or given to: ``tf.function(lambda: ...)``."""
    for decorator in getattr(function, "decorator_list", ()):
        is_call = isinstance(decorator, ast.Call)
        yield (decorator.func, decorator) if is_call else (decorator, None)
    parent = program.parent(function)
    if isinstance(parent, ast.Call) and function in parent.args:
        yield parent.func, parent
    for call in program.given_to.get(getattr(function, "name", ""), ()):
        yield call.func, call
