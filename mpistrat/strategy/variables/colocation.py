"""Place new variables: beside another one (``colocate_vars_with``), or on the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["beside", "colocated_with", "is_on_host", "on_host"]

_beside: ContextVar[Any] = ContextVar("mpistrat_colocated_with", default=None)
_on_host: ContextVar[bool] = ContextVar("mpistrat_on_host", default=False)


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


def is_on_host() -> bool:
    """Tell whether new variables of this thread are on the host, wherever their replicas are."""
    return _on_host.get()


@contextmanager
def on_host() -> Iterator[None]:
    """Make variables on the host within the block, such as counters that the host reads."""
    before = _on_host.get()
    try:
        _on_host.set(True)
        yield
    finally:
        _on_host.set(before)
