"""Horovod's callbacks, which call what Keras 3 has not."""

from __future__ import annotations

from collections.abc import Iterator

from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_RATE = "raises AttributeError (get_value) at the first batch: it calls Keras 3's backend"
_SCHEDULE = (
    "keras.callbacks.LearningRateScheduler or keras.optimizers.schedules; the batch is the one of"
    " all ranks together, so a rate that suits it needs no factor hvd.size()"
)
# What happens, and what to use.
_CALLBACKS = {
    "BroadcastGlobalVariablesCallback": (
        "raises AttributeError (ref) after the first batch under Keras 3",
        "nothing: variables made in strategy.scope() begin with rank 0's values on all ranks",
    ),
    "MetricAverageCallback": (
        "raises AttributeError (constant) at the end of an epoch: it calls Keras 3's backend",
        "nothing: metrics in strategy.scope() count the rows of all ranks",
    ),
    "LearningRateScheduleCallback": (_RATE, _SCHEDULE),
    "LearningRateWarmupCallback": (_RATE, _SCHEDULE),
    "BestModelCheckpoint": (
        "raises AttributeError (endswith): it gives Keras 3 no file's name",
        "keras.callbacks.ModelCheckpoint(file, save_best_only=True) on all ranks: one file",
    ),
}


_OF_KERAS_2 = ("BroadcastGlobalVariablesCallback", "BestModelCheckpoint")  # work with it


def _find(program: Program) -> Iterator[Trap]:
    for use in program.uses:
        area, _, name = use.name.rpartition(".")
        works = name in _OF_KERAS_2 and not program.is_keras_3(use)
        if area == "callbacks" and name in _CALLBACKS and not works:
            yield Trap(use.node, Outcome.FAILS, *_CALLBACKS[name])


RULE = Rule("keras-callbacks", _find)
