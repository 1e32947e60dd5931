"""Track the current strategy, and whether code runs inside a replica or across replicas.

The answer is kept in a context variable: it holds for the current thread (or task) only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from mpistrat.errors import ContextError
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy
    from mpistrat.strategy.replicas.replica_context import ReplicaContext

__all__ = [
    "Mode",
    "current",
    "enter",
    "experimental_set_strategy",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
    "placed",
    "set_default",
]


class Mode(NamedTuple):
    """What code is running for.

    Attributes
    ----------
    strategy
        The current strategy.
    replica
        The replica that runs; None while the code is across replicas.
    updating
        Local index of the replica whose copy ``extended.update`` is changing, or None.
    """

    strategy: Strategy
    replica: ReplicaContext | None
    updating: int | None = None


_mode: ContextVar[Mode | None] = ContextVar("mpistrat_mode", default=None)
_make_default: Callable[[], Strategy]


def current() -> Mode | None:
    """Return the mode of this thread, or None outside of every scope."""
    return _mode.get()


@contextmanager
def enter(mode: Mode | None) -> Iterator[None]:
    """Make `mode` current within the block."""
    before = _mode.get()
    try:  # set inside: a Ctrl-C right after it must not leave the mode for good
        _mode.set(mode)
        yield
    finally:
        _mode.set(before)


def set_default(make_strategy: Callable[[], Strategy]) -> None:
    """Set what makes the default strategy. **Local.**

    This module is below the strategies, so it is told; see the package's ``__init__``.
    """
    global _make_default  # noqa: PLW0603 - one default for the process
    _make_default = make_strategy


@lru_cache(maxsize=1)
def _default() -> Mode:
    strategy = _make_default()
    return Mode(strategy, strategy.extended.replica_contexts[0])


def get_strategy() -> Strategy:
    """Return the strategy whose scope this code is in; the default strategy outside of all.

    Notes
    -----
    **Local.** The default strategy has one replica, and returns values as they are.

    References
    ----------
    tf.distribute.get_strategy.
    """
    return (_mode.get() or _default()).strategy


def has_strategy() -> bool:
    """Tell whether this code is in the scope (or a replica) of a strategy. **Local.**"""
    return _mode.get() is not None


def get_replica_context() -> ReplicaContext | None:
    """Return the replica that runs this code, or None across replicas (in a scope). **Local.**

    Outside of all scopes it is the one replica of the default strategy.
    """
    return (_mode.get() or _default()).replica


def in_cross_replica_context() -> bool:
    """Tell whether this code is in a scope but in no replica. **Local.**"""
    mode = _mode.get()
    return mode is not None and mode.replica is None


def placed(value: Array) -> Array:
    """Return an array on the device of the running replica, a copy on a GPU. **Local.**

    Across replicas, and in replicas on a CPU, it is the array itself.
    """
    mode = _mode.get()
    if mode is None or mode.replica is None:
        return value
    found: Array = mode.replica.placed(value)
    return found


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Make `strategy` current for the rest of this thread, without a ``with`` block.

    None goes back to the default strategy. Not allowed inside a scope or a replica.
    """
    mode = _mode.get()
    if mode is not None and (mode.replica is not None or not _was_set(mode)):
        raise ContextError("experimental_set_strategy inside a scope or replica; leave it first")
    _mode.set(None if strategy is None else _SetMode(strategy, None))


class _SetMode(Mode):
    """A mode that experimental_set_strategy made."""

    __slots__ = ()


def _was_set(mode: Mode) -> bool:
    return isinstance(mode, _SetMode)
