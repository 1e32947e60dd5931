"""Horovod's elastic mode: its states of Keras models fail, and mpirun and srun end the job."""

from __future__ import annotations

from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_STATES = ("elastic.KerasState", "elastic.TensorFlowKerasState")
_STATE = "raises TypeError: variables of a Keras 3 optimizer is a list, not a method"
_STATE_INSTEAD = "PreemptionCallback in fit(), or train.Checkpoint with all that a state held"
_RUN = (
    "under mpirun and srun nothing is resumed: the launcher ends the job with the rank that it"
    " lost; only horovodrun with Gloo starts ranks anew"
)
_RUN_INSTEAD = (
    "PreemptionHandler or PreemptionCallback: they save before the batch system ends the job, and"
    " the next job goes on there, on any number of ranks"
)


def _find(program: Program) -> Iterator[Trap]:
    for use in program.uses:
        if use.name in _STATES and program.is_keras_3(use):
            yield Trap(use.node, Outcome.FAILS, _STATE, _STATE_INSTEAD)
        elif use.name == "elastic.run":
            yield Trap(use.node, Outcome.FAILS, _RUN, _RUN_INSTEAD)


RULE = Rule("elastic", _find)
