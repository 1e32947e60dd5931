"""Horovod's timeline started by the program, which has to be asked for in the environment."""

from __future__ import annotations

from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_HAPPENS = "raises ValueError unless HOROVOD_TIMELINE=DYNAMIC is set before hvd.init()"
_INSTEAD = "the strategy's timeline: MPISTRAT_TIMELINE in the environment"


def _find(program: Program) -> Iterator[Trap]:
    if program.says("HOROVOD_TIMELINE"):
        return
    for _, call in program.called("start_timeline"):
        yield Trap(call, Outcome.FAILS, _HAPPENS, _INSTEAD)


RULE = Rule("timeline", _find)
