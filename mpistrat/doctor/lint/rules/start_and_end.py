"""Horovod's start and end of MPI: a second start, and mpi4py that comes after Horovod."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_AGAIN = (
    "aborts: hvd.shutdown() has ended MPI, which starts once in a process; it is left running only"
    " where mpi4py was imported before hvd.init()"
)
_LATE = (
    "MPI is Horovod's then: hvd.shutdown(), which runs when the program ends too, ends it, and any"
    " later call of mpi4py aborts"
)
_IGNORED = "is ignored, without an error: Horovod has started already, over all ranks"
_FIRST = "import mpi4py's MPI before hvd.init(); a strategy does so, and never ends MPI"
_BLOCKS = (
    *(ast.If, ast.Try, ast.With, ast.Module),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda),
)
_ONCE = "a strategy for each communicator: MirroredStrategy(comm=...)"


def _find(program: Program) -> Iterator[Trap]:
    starts = [call for _, call in program.called("init")]
    if not starts:
        return
    imports = [
        node
        for node in ast.walk(program.tree)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and _is_mpi4py(node)
    ]
    is_first = any(one.lineno < starts[0].lineno for one in imports)
    ends = [call.lineno for _, call in program.called("shutdown")]
    for before, call in itertools.pairwise(starts):
        if any(before.lineno <= line <= call.lineno for line in ends):
            if not is_first:
                yield Trap(call, Outcome.FAILS, _AGAIN, _FIRST)
        elif _are_in_turn(program, before, call) and (call.args or call.keywords):
            yield Trap(call, Outcome.SILENT, _IGNORED, _ONCE)
    for node in () if is_first else imports:
        if _are_in_turn(program, starts[0], node):
            yield Trap(node, Outcome.FAILS, _LATE, _FIRST)


def _is_mpi4py(node: ast.Import | ast.ImportFrom) -> bool:
    """Tell whether a statement imports mpi4py.MPI, which starts MPI."""
    if isinstance(node, ast.ImportFrom):
        is_part = node.module == "mpi4py" and any(one.name == "MPI" for one in node.names)
        return is_part or node.module == "mpi4py.MPI"
    return any(one.name == "mpi4py.MPI" for one in node.names)


def _are_in_turn(program: Program, first: ast.AST, second: ast.AST) -> bool:
    """Tell whether two parts of the program are in one block: no branch or function apart."""
    return _block(program, first) is _block(program, second)


def _block(program: Program, node: ast.AST) -> ast.AST | None:
    return next((one for one, _ in program.above(node) if isinstance(one, _BLOCKS)), None)


RULE = Rule("start-and-end", _find)
