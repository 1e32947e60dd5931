"""The traps that the lint knows, each in a file of its name; the order is that of the page."""

from __future__ import annotations

from mpistrat.doctor.lint.finding import Rule
from mpistrat.doctor.lint.rules import (
    captured_tensors,
    compiled_functions,
    dtypes,
    elastic,
    keras_callbacks,
    keras_layers,
    keras_optimizer,
    keras_variables,
    launcher,
    process_sets,
    some_ranks,
    start_and_end,
    timeline,
    uneven_inputs,
    unused_results,
)

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    keras_optimizer.RULE,
    keras_callbacks.RULE,
    keras_layers.RULE,
    keras_variables.RULE,
    dtypes.RULE,
    compiled_functions.RULE,
    captured_tensors.RULE,
    some_ranks.RULE,
    unused_results.RULE,
    uneven_inputs.RULE,
    process_sets.RULE,
    elastic.RULE,
    start_and_end.RULE,
    launcher.RULE,
    timeline.RULE,
)
