"""Name the variables of legacy Keras's optimizers for the comparison over ranks, without counts.

They are named after the weights, and so after layers, which legacy Keras counts in each process
as Keras 3 does (variable_names.py). The weights have names of their own alone, such as ``kernel``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mpistrat.tensorflow.graph.same_variables.variable_order import named
from mpistrat.tensorflow.keras.names.variable_names import note_count, uncounted

__all__ = ["counted", "note_all", "of_reference", "of_slot"]


def note_all(counts_by_graph: Any) -> None:
    """Note the counts of names that were made before the strategy. **Local.**"""
    for counts in counts_by_graph.values():
        for key, number in counts.items():
            # Layers have pairs of a namespace and a name; inputs have names.
            note_count(key if isinstance(key, str) else key[1], number)


def counted(original: Callable[..., str]) -> Callable[..., str]:
    """Wrap ``unique_object_name``, with which legacy Keras numbers its names."""

    @wraps(original)
    def unique_object_name(name: str, *args: Any, **kwargs: Any) -> str:
        found = original(name, *args, **kwargs)
        number = found.rpartition("_")[2]
        note_count(name, int(number) if found != name and number.isdigit() else 0)
        return found

    return unique_object_name


def of_reference(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``add_variable_from_reference`` of optimizers."""

    def add(self: Any, model_variable: Any, variable_name: str, *args: Any, **kwargs: Any) -> Any:
        with named(uncounted(f"{variable_name}/{model_variable._shared_name}")):
            return original(self, model_variable, variable_name, *args, **kwargs)

    return add


def of_slot(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``add_slot`` of ``optimizers.legacy``."""

    def add(self: Any, var: Any, slot_name: str, *args: Any, **kwargs: Any) -> Any:
        with named(uncounted(f"{var._shared_name}/{slot_name}")):
            return original(self, var, slot_name, *args, **kwargs)

    return add
