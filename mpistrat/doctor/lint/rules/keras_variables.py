"""Variables of Keras 3 given to Horovod, which takes them for TensorFlow's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mpistrat.doctor.lint.collectives import first_argument, graph_function
from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_TAPES = ("DistributedGradientTape", "PartialDistributedGradientTape")
_OF_MODELS = ("trainable_variables", "trainable_weights", "variables", "weights")
_TAPE = "raises AttributeError (ref): variables of Keras 3 are not TensorFlow's"
_TAPE_INSTEAD = (
    "strategy.run(step), with a bare tf.GradientTape and optimizer.apply_gradients(): it sums the"
    " gradients of all ranks"
)
_CALLED = "raises TypeError: variables is a list in Keras 3, not a method"
_EAGER = "raises AttributeError for variables of Keras 3 outside of a tf.function"
_IN_PLACE = "raises AttributeError (device): variables of Keras 3 are not TensorFlow's"
_GLOBAL = "raises RuntimeError where TensorFlow runs eagerly, as it does from 2.0 on"
_BEGIN = "nothing: variables made in strategy.scope() begin with rank 0's values on all ranks"
_EAGERNESS = (
    "tensorflow.compat.v1.disable_eager_execution",
    "tensorflow.compat.v1.disable_v2_behavior",
)


def _find(program: Program) -> Iterator[Trap]:
    if program.mentions_keras and not program.is_legacy:
        yield from _gradients(program)
        yield from _broadcasts(program)
    if any(program.names.path(call.func) in _EAGERNESS for call in program.calls):
        return
    for use in program.uses:
        if use.name == "broadcast_global_variables":
            yield Trap(use.node, Outcome.FAILS, _GLOBAL, _BEGIN)


def _gradients(program: Program) -> Iterator[Trap]:
    """Find ``tape.gradient(loss, model.trainable_variables)`` where the tape is Horovod's."""
    tapes: set[ast.expr] = {call for _, call in program.called(*_TAPES)}
    for call in program.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "gradient"):
            continue
        sources = call.args[1] if len(call.args) > 1 else _keyword(call, "sources")
        if sources is None or not _are_of_keras(program, sources):
            continue
        tape = call.func.value
        if {tape, program.names.value(tape)} & tapes or _is_entered(program, tape, tapes):
            yield Trap(call, Outcome.FAILS, _TAPE, _TAPE_INSTEAD)


def _is_entered(program: Program, tape: ast.expr, tapes: set[ast.expr]) -> bool:
    """Tell whether a tape is the name in ``with hvd.DistributedGradientTape(...) as tape``."""
    return any(
        isinstance(item, ast.withitem)
        and item.context_expr in tapes
        and isinstance(item.optional_vars, ast.Name)
        and isinstance(tape, ast.Name)
        and item.optional_vars.id == tape.id
        for item in ast.walk(program.tree)
    )


def _broadcasts(program: Program) -> Iterator[Trap]:
    for _, call in program.called("broadcast_variables"):
        given = first_argument(call, "variables")
        if isinstance(given, ast.Call) and _is_variables(given.func):
            yield Trap(given, Outcome.FAILS, _CALLED, _BEGIN)
        elif given is not None and _are_of_keras(program, given):
            if _keyword(call, "inplace") is not None:
                yield Trap(call, Outcome.FAILS, _IN_PLACE, _BEGIN)
            elif graph_function(program, call) is None:
                yield Trap(call, Outcome.FAILS, _EAGER, _BEGIN)


def _are_of_keras(program: Program, variables: ast.expr) -> bool:
    """Tell whether it reads ``model.variables``, of what is no module of TensorFlow's."""
    given = program.names.value(variables)
    return (
        isinstance(given, ast.Attribute)
        and _is_variables(given)
        and "tensorflow.Module" not in program.bases(program.names.value(given.value))
    )


def _is_variables(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _OF_MODELS


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


RULE = Rule("keras-variables", _find)
