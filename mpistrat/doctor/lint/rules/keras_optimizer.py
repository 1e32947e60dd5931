"""Horovod's optimizer around one of Keras 3: the gradients of the ranks are never combined."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.collectives import first_argument
from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program
from mpistrat.doctor.lint.uses import Use

__all__ = ["RULE"]

_V1 = ("tensorflow.compat.v1.train.", "tensorflow.train.")
_SILENT = (
    "Keras 3 has no hook where Horovod combines gradients: each rank trains on its own, without"
    " an error, and their weights drift apart; saving the model raises TypeError"
)
_FAILS = "raises AttributeError (aggregate_gradients) at the first step under Keras 3"
_LOADED = (
    "the model that it loads has Keras's own optimizer: each rank trains on its own, without an"
    " error, and their weights drift apart"
)
_LOAD = "keras.models.load_model() in strategy.scope() of MirroredStrategy()"
_SUMMED = "hvd.DistributedOptimizer of horovod.tensorflow.keras, which takes op="
_SUM = "the optimizer drops op=Sum: the ranks' gradients are averaged, without an error"
_INSTEAD = (
    "make and compile the model in strategy.scope() of MirroredStrategy() with the bare optimizer;"
    " fit() then takes the gradients of all ranks"
)


def _find(program: Program) -> Iterator[Trap]:
    for use in program.uses:
        if use.name == "load_model" and program.is_keras_3(use):
            yield Trap(use.node, Outcome.SILENT, _LOADED, _LOAD)
        elif use.name == "DistributedOptimizer" and not _is_v1(program, use):
            yield from _wrapped(program, use)


def _wrapped(program: Program, use: Use) -> Iterator[Trap]:
    options = {one.arg: one.value for one in use.call.keywords} if use.call else {}
    passes = options.get("backward_passes_per_step", ast.Constant(1))
    if not program.is_keras_3(use):
        if use.module == "horovod.tensorflow" and _is_sum(program, options.get("op")):
            yield Trap(use.node, Outcome.SILENT, _SUM, _SUMMED)
    elif isinstance(passes, ast.Constant) and passes.value == 1:
        yield Trap(use.node, Outcome.SILENT, _SILENT, _INSTEAD)
    else:
        yield Trap(use.node, Outcome.FAILS, _FAILS, _INSTEAD)


def _is_sum(program: Program, op: ast.expr | None) -> bool:
    return op is not None and (program.names.path(op) or "").endswith(".Sum")


def _is_v1(program: Program, use: Use) -> bool:
    """Tell whether it wraps an optimizer of TensorFlow 1, with which it works."""
    given = first_argument(use.call, "optimizer") if use.call else None
    value = program.names.value(given) if given else None
    path = program.names.path(value.func) if isinstance(value, ast.Call) else None
    return use.module == "horovod.tensorflow" and (path or "").startswith(_V1)


RULE = Rule("keras-optimizer", _find)
