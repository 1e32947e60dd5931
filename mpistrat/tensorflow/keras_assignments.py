"""Watch what replicas assign to Keras's variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat.tensorflow import statistics

__all__ = ["assigned"]


def assigned(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Variable._direct_assign``. **Local.**"""

    def assign(self: Any, *args: Any, **kwargs: Any) -> Any:
        statistics.note_assignment(self._value)
        return original(self, *args, **kwargs)

    return assign
