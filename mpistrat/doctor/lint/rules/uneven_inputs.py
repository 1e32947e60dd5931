"""`hvd.join()` beside means: ranks that are done count as zeros."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_MEANS = ("allreduce", "grouped_allreduce", "DistributedGradientTape", "DistributedOptimizer")
_HAPPENS = (
    "a rank that is done counts as zeros, and the mean is still over all ranks: with one of two"
    " ranks left gradients are half of what they should be, without an error"
)
_INSTEAD = (
    "a strategy's data set: ranks without rows take part in each step, and means are over the rows"
    " that there are"
)


def _find(program: Program) -> Iterator[Trap]:
    if not any(_is_mean(program, call) for _, call in program.called(*_MEANS)):
        return
    for _, call in program.called("join"):
        yield Trap(call, Outcome.SILENT, _HAPPENS, _INSTEAD)


def _is_mean(program: Program, call: ast.Call) -> bool:
    ops = [one.value for one in call.keywords if one.arg == "op"]
    return not ops or (program.names.path(ops[0]) or "").endswith(".Average")


RULE = Rule("uneven-inputs", _find)
