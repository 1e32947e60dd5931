"""Results of collectives that a `tf.function` does not use, on some ranks or on all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.collectives import collectives, depends_on_rank, graph_function
from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_WITH_EFFECT = (
    "broadcast_variables",
    "broadcast_",
    "join",
    "broadcast_object",
    "allgather_object",
)
_DROPPED = (
    "never runs: TensorFlow drops Horovod's operation from the graph, since nothing uses its"
    " result; as a barrier it waits for nobody"
)
_HANGS = (
    "hangs: ranks that do not use the result drop the operation from their graphs, and the others"
    " wait for them"
)
_INSTEAD = (
    "a strategy's collectives run on all ranks, whoever uses their results; with Horovod return"
    " the result from the function"
)


def _find(program: Program) -> Iterator[Trap]:
    for use, call in collectives(program):
        made = graph_function(program, call)
        if made is None or use.name in _WITH_EFFECT:
            continue
        statement = program.parent(call)
        if isinstance(statement, ast.Expr):
            yield Trap(call, Outcome.SILENT, _DROPPED, _INSTEAD)
        elif isinstance(statement, ast.Assign) and _is_for_some(program, statement, made[0]):
            yield Trap(call, Outcome.HANGS, _HANGS, _INSTEAD)


def _is_for_some(program: Program, made: ast.Assign, function: ast.AST) -> bool:
    """Tell whether a function reads a variable only where a condition on the rank holds."""
    target = made.targets[0]
    name = target.id if isinstance(target, ast.Name) else None
    reads = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    return bool(reads) and all(_is_in_branch(program, node) for node in reads)


def _is_in_branch(program: Program, node: ast.AST) -> bool:
    return any(
        isinstance(one, (ast.If, ast.IfExp))
        and part is not one.test
        and depends_on_rank(program, one.test)
        for one, part in program.above(node)
    )


RULE = Rule("unused-results", _find)
