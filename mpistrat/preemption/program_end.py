"""Close the handler of a program that comes to its end without having closed it."""

from __future__ import annotations

import contextlib
from typing import Protocol

from mpistrat.preemption.preempted import Preempted
from mpistrat.system import exit_hooks
from mpistrat.system.exit_hooks import Phase

__all__ = ["forget", "watch"]


class Closable(Protocol):
    """What is watched: a `PreemptionHandler`."""

    def close(self) -> None:
        """End it, on all ranks together."""
        ...


_open: list[Closable] = []  # several only where ranks are threads
_is_registered = False


def watch(handler: Closable) -> None:
    """Close `handler` at the end of the program, if that ends without an error. **Local.**"""
    global _is_registered  # noqa: PLW0603 - the end of a process is one
    if not _is_registered:
        _is_registered = True
        exit_hooks.watch_errors()
        exit_hooks.register(Phase.PREEMPTION, _close)
    _open.append(handler)


def forget(handler: Closable) -> None:
    """Drop a handler that was closed. **Local.**"""
    if handler in _open:
        _open.remove(handler)


def _close() -> None:
    is_well = exit_hooks.ending.error is None and not any(exit_hooks.ending.statuses)
    # Those of several threads would have to be closed at the same time.
    if is_well and len(_open) == 1:
        with contextlib.suppress(Preempted):  # it has saved, and the program is at its end
            _open[0].close()
