"""Batch normalization over the ranks: Horovod's layer, and Keras's, which needs a strategy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_FAILS = "raises ValueError (fused) under Keras 3 when the layer is made"
_SILENT = (
    "Keras combines the statistics over the replicas of a strategy; under Horovod there is none:"
    " each rank normalizes by its own rows, without an error"
)
_INSTEAD = "keras.layers.BatchNormalization(synchronized=True) in strategy.scope()"


def _find(program: Program) -> Iterator[Trap]:
    for use in program.uses:
        if use.name == "SyncBatchNormalization" and program.is_keras_3(use):
            yield Trap(use.node, Outcome.FAILS, _FAILS, _INSTEAD)
    for call in program.calls:
        path = program.names.path(call.func) or ""
        if path.endswith(".BatchNormalization") and _is_synchronized(call):
            yield Trap(call, Outcome.SILENT, _SILENT, _INSTEAD)


def _is_synchronized(call: ast.Call) -> bool:
    values = [one.value for one in call.keywords if one.arg == "synchronized"]
    return any(isinstance(one, ast.Constant) and one.value is True for one in values)


RULE = Rule("keras-layers", _find)
