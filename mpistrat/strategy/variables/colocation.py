"""``colocate_vars_with``: place new variables beside another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["beside", "colocated_with"]

_beside: ContextVar[Any] = ContextVar("mpistrat_colocated_with", default=None)


def colocated_with() -> Any:
    """Return the variable of the innermost ``colocate_vars_with`` of this thread, or None."""
    return _beside.get()


@contextmanager
def beside(variable: Any) -> Iterator[None]:
    """Make `variable` the one that new variables are made beside within the block."""
    before = _beside.get()
    try:
        _beside.set(variable)
        yield
    finally:
        _beside.set(before)
