"""Eager tensors and arrays that a `tf.function` captures and gives to Horovod without a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.collectives import collectives, first_argument, graph_function
from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_NAMED = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
_VARIABLES = ("tensorflow.Variable", "tensorflow.compat.v1.get_variable")
_HAPPENS = (
    "raises AttributeError (name): inside of a tf.function Horovod names the operation after its"
    " tensor, and one that was made outside has no name"
)
_INSTEAD = "strategy.run(), whose collectives need no names; or name= here, the same on all ranks"


def _find(program: Program) -> Iterator[Trap]:
    for use, call in collectives(program):
        given = first_argument(call)
        made = graph_function(program, call)
        is_named = len(call.args) > 2 or any(one.arg == "name" for one in call.keywords)
        if made is None or is_named or use.name not in _NAMED:
            continue
        if isinstance(given, ast.Name) and _is_from_outside(program, given, made[0]):
            yield Trap(call, Outcome.FAILS, _HAPPENS, _INSTEAD)


def _is_from_outside(program: Program, given: ast.Name, function: ast.AST) -> bool:
    """Tell whether a tensor or array, and no variable, is made outside of the function."""
    scope = program.names.scope_of(given)
    value = program.names.value(given)
    path = program.names.path(value.func) if isinstance(value, ast.Call) else None
    return (
        scope is not None
        and not program.names.is_inside(scope, function)
        and (path or "").startswith(("tensorflow.", "numpy."))
        and path not in _VARIABLES
        and not (path or "").startswith("tensorflow.keras.")
    )


RULE = Rule("captured-tensors", _find)
