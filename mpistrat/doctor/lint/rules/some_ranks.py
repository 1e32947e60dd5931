"""Collectives that only some ranks reach, or that ranks reach in different orders."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from mpistrat.doctor.lint.collectives import collectives, depends_on_rank
from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program
from mpistrat.doctor.lint.scopes import place

__all__ = ["RULE"]

_ENDS = (ast.Return, ast.Continue, ast.Break)
_HANGS = (
    "ranks that do not come here leave the others waiting: Horovod writes a warning after 60 s,"
    " and waits on, until a rank ends"
)
_HANGS_INSTEAD = (
    "call it on all ranks and use the result on some; a strategy's collectives end with an error"
    " on all ranks that says what each one called"
)
_SILENT = (
    "ranks call different collectives here; without name= Horovod pairs them by their order, and"
    " combines what does not belong together, without an error"
)
_SILENT_INSTEAD = (
    "one order on all ranks; a strategy compares what the ranks call, and names those that differ"
)


def _find(program: Program) -> Iterator[Trap]:
    for _, call in _meetings(program):
        branch = _branch(program, call)
        if branch is None:
            if _follows_an_exit(program, call):
                yield Trap(call, Outcome.HANGS, _HANGS, _HANGS_INSTEAD)
            continue
        own, other = (_calls(program, part) for part in branch)
        if any(name == "join" for name, _ in own + other):
            continue  # the others' collectives go on without the ranks that join
        if [name for name, _ in own] != [name for name, _ in other]:
            yield Trap(call, Outcome.HANGS, _HANGS, _HANGS_INSTEAD)
        elif own != other and sorted(own) == sorted(other) and not _has_name(call):
            yield Trap(call, Outcome.SILENT, _SILENT, _SILENT_INSTEAD)


def _meetings(program: Program, *above: ast.AST) -> list[tuple[str, ast.Call]]:
    """Return the calls of collectives, and of the program's functions that have some."""
    inside = {node for one in above or (program.tree,) for node in ast.walk(one)}
    direct = [(use.name, call) for use, call in collectives(program) if not _is_for_some(call)]
    makers = {_name_of(program, call) for name, call in direct if name != "join"} - {""}
    called = [
        (call.func.id, call)
        for call in program.calls
        if isinstance(call.func, ast.Name) and call.func.id in makers
    ]
    found = [(name, call) for name, call in (*direct, *called) if call in inside]
    return sorted(found, key=lambda one: place(one[1]))


def _is_for_some(call: ast.Call) -> bool:
    return any(one.arg == "process_set" for one in call.keywords)


def _name_of(program: Program, call: ast.Call) -> str:
    """Return the function that makes a call each time it is called itself, or ""."""
    for node, _ in program.above(call):
        if isinstance(node, (ast.If, ast.IfExp, ast.BoolOp, ast.While, ast.Lambda)):
            return ""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            is_method = isinstance(program.parent(node), ast.ClassDef)
            return "" if is_method or _follows_an_exit(program, call) else node.name
    return ""


def _has_name(call: ast.Call) -> bool:
    return any(one.arg == "name" for one in call.keywords)


def _branch(program: Program, call: ast.Call) -> tuple[list[ast.AST], list[ast.AST]] | None:
    """Return the branch of a condition on the rank that a call is in, and the other branch."""
    for node, part in program.above(call):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(node, ast.BoolOp) and _follows_rank(program, node, part):
            return [part], []
        if not isinstance(node, (ast.If, ast.IfExp)) or part is node.test:
            continue
        body, other = _as_list(node.body), _as_list(node.orelse)
        if depends_on_rank(program, node.test):
            return (body, other) if part in body else (other, body)
    return None


def _follows_rank(program: Program, node: ast.BoolOp, part: ast.AST) -> bool:
    """Tell whether a part of ``a and b`` is reached by the rank, as in ``rank == 0 and f()``."""
    before = itertools.takewhile(lambda value: value is not part, node.values)
    return any(depends_on_rank(program, value) for value in before)


def _follows_an_exit(program: Program, call: ast.Call) -> bool:
    """Tell whether ``if hvd.rank() != 0: return`` or the like stands before the call."""
    for node, part in program.above(call):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if not isinstance(block, list) or part not in block:
                continue
            if any(_leaves(program, one) for one in block[: block.index(part)]):
                return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
    return False


def _leaves(program: Program, statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.If)
        and not statement.orelse
        and _is_exit(program, statement.body[-1])
        and depends_on_rank(program, statement.test)
    )


def _is_exit(program: Program, last: ast.stmt) -> bool:
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return program.names.path(last.value.func) in ("sys.exit", "exit", "quit", "os._exit")
    return isinstance(last, _ENDS)


def _calls(program: Program, part: list[ast.AST]) -> list[tuple[str, str]]:
    """Return the collectives of a branch in their order: what they do, to what."""
    return [
        (name, program.source(call.args[0]) if call.args else "")
        for name, call in (_meetings(program, *part) if part else ())
    ]


def _as_list(part: list[ast.stmt] | ast.expr) -> list[ast.AST]:
    return list(part) if isinstance(part, list) else [part]


RULE = Rule("some-ranks", _find)
