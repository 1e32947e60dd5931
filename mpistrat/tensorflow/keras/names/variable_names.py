"""Name Keras's variables for the comparison over ranks: by their paths, without counts.

Keras names what has no name of its own by its class and a count of this process, such as
``dense_1``; a rank that has made another model before is ahead of the others. The names that a
program gives are the same on all ranks, and are compared whole.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from mpistrat.tensorflow.graph.same_variables.variable_order import named

__all__ = ["counted", "created", "note_count", "of_reference", "uncounted"]

_COUNTS: dict[str, int] = {}  # of the names that Keras has made, the highest numbers
_NAME = "_mpistrat_name"  # set on Keras's variables


class _Local(threading.local):
    reference: tuple[str, str] | None = None  # how the name of an optimizer's variable begins


_local = _Local()


def counted(original: Callable[[str], str]) -> Callable[[str], str]:
    """Wrap ``uniquify``, with which Keras numbers its names: note the numbers."""
    state = sys.modules["keras.src.backend.common.global_state"]
    # How many names there are already, of models that were made before the strategy.
    for name, count in (state.get_global_attribute("object_name_uids") or {}).items():
        _COUNTS[name] = count - 1

    @wraps(original)
    def uniquify(name: str) -> str:
        found = original(name)
        number = found[len(name) + 1 :]
        note_count(name, int(number) if number.isdigit() else 0)
        return found

    return uniquify


def note_count(name: str, number: int) -> None:
    """Note that Keras has made a name with this number. **Local.**"""
    _COUNTS[name] = max(_COUNTS.get(name, 0), number)


def uncounted(path: str) -> str:
    """Return a path without the counts that Keras has made. **Local.**"""
    return "/".join(map(_without_count, path.split("/")))


def created(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Variable._initialize``, which makes TensorFlow's variable."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        name = uncounted(_begun_by_reference(self.path))
        setattr(self, _NAME, name)
        with named(name):
            original(self, *args, **kwargs)

    return initialize


def of_reference(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``add_variable_from_reference``: its name begins with the path of the other one."""

    def add(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        # TensorFlow's own variables have none, and their getattr may read the variable.
        name = vars(reference_variable).get(_NAME)
        before = _local.reference
        _local.reference = name and (reference_variable.path.replace("/", "_"), name)
        try:
            return original(self, reference_variable, *args, **kwargs)
        finally:
            _local.reference = before

    return add


def _begun_by_reference(path: str) -> str:
    if _local.reference is None:
        return path
    begin, name = _local.reference
    return path.replace(begin, name, 1)


def _without_count(name: str) -> str:
    """Return a name as it is if the program gave it, else without its count.

    Some layers put a word before, as in ``forward_lstm_1`` of Bidirectional.
    """
    base, _, number = name.rpartition("_")
    if not number.isdigit():
        return name
    words = base.split("_")
    ends = ("_".join(words[first:]) for first in range(len(words)))
    return base if any(int(number) <= _COUNTS.get(end, -1) for end in ends) else name
