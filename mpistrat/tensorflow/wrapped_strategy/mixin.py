"""Put our methods before those of an existing TensorFlow object, by a derived class."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["join"]


def join(one: Any, ours: type) -> None:
    """Let an object of TensorFlow's have our members, too. **Local.**"""
    one.__class__ = _joined((ours, type(one)))


@functools.cache
def _joined(ours_and_theirs: tuple[type, type]) -> Any:
    theirs = ours_and_theirs[1]
    members = {"__doc__": theirs.__doc__, "__module__": theirs.__module__}
    return type(theirs.__name__, ours_and_theirs, members)
