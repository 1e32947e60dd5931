"""Process sets that are added after the start, which has to be asked for at the start."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_VARIABLE = "HOROVOD_DYNAMIC_PROCESS_SETS"
_HAPPENS = 'raises ValueError, as hvd.init() was not given process_sets="dynamic"'
_INSTEAD = "a strategy over a part of the ranks: MirroredStrategy(comm=comm.Split(...))"


def _find(program: Program) -> Iterator[Trap]:
    if program.says(_VARIABLE) or any(_is_dynamic(call) for _, call in program.called("init")):
        return
    for _, call in program.called("add_process_set", "remove_process_set"):
        yield Trap(call, Outcome.FAILS, _HAPPENS, _INSTEAD)


def _is_dynamic(call: ast.Call) -> bool:
    """Tell whether init() is given "dynamic", or what only running would tell."""
    given = [one.value for one in call.keywords if one.arg in ("process_sets", None)]
    given += call.args[1:]
    return any(
        not isinstance(one, (ast.Constant, ast.List))
        or (isinstance(one, ast.Constant) and str(one.value).lower() == "dynamic")
        for one in given
    )


RULE = Rule("process-sets", _find)
