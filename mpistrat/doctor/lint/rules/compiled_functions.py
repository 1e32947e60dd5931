"""Horovod's operations in functions that XLA compiles, for which they have no kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.collectives import COLLECTIVES, graph_function
from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_TAPES = ("DistributedGradientTape", "PartialDistributedGradientTape")
_STEPS = ("train_step", "test_step")
_HAPPENS = (
    "raises InvalidArgumentError: Horovod's operations have no kernel for XLA on CPUs, and on GPUs"
    " only where HOROVOD_ENABLE_XLA_OPS=1 is set"
)
_INSTEAD = "a strategy, whose collectives XLA takes on CPUs; or jit_compile=False"


def _find(program: Program) -> Iterator[Trap]:
    steps = False
    for _, call in program.called(*COLLECTIVES, *_TAPES):
        made = graph_function(program, call)
        if made and made[1] is not None and _is_compiled(made[1]):
            yield Trap(call, Outcome.FAILS, _HAPPENS, _INSTEAD)
        names = [getattr(one, "name", "") for one in program.functions(call)]
        steps = steps or any(name in _STEPS for name in names)
    for call in program.calls if steps else ():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name == "compile" and _is_compiled(call):
            yield Trap(call, Outcome.FAILS, _HAPPENS, _INSTEAD)


def _is_compiled(call: ast.Call) -> bool:
    values = [one.value for one in call.keywords if one.arg == "jit_compile"]
    return any(isinstance(one, ast.Constant) and one.value is True for one in values)


RULE = Rule("compiled-functions", _find)
