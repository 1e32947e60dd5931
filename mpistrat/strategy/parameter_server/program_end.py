"""Close a chief's strategies when the program ends, or tell the others that it failed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpistrat.errors import CommunicationError
from mpistrat.system.log import get_logger
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase

if TYPE_CHECKING:
    from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy

__all__ = ["forget", "has_open", "watch"]

_LOG = get_logger(__name__)


class _Open:
    """The strategies of this process that were not closed."""

    def __init__(self) -> None:
        self.strategies: set[ParameterServerStrategy] = set()
        self.owner = -1

    def add(self, strategy: ParameterServerStrategy) -> None:
        if self.owner != os.getpid():
            self.owner = os.getpid()
            self.strategies.clear()  # those of a parent that was forked
            exit_hooks.register(Phase.STRATEGIES, self.end)
        self.strategies.add(strategy)

    def end(self) -> None:
        # A copy: close() and abandon() take the strategy out of the set.
        for strategy in list(self.strategies):
            reason = _failure(strategy)
            if reason:
                strategy.abandon(reason)
                continue
            try:
                strategy.close()
            except CommunicationError as error:
                _LOG.warning("at the end of the program: %s", error)
                strategy.abandon(str(error))

    def has_any(self) -> bool:
        return self.owner == os.getpid() and any(one.job.size > 1 for one in self.strategies)

    def forget(self, strategy: ParameterServerStrategy) -> None:
        self.strategies.discard(strategy)


_open = _Open()


def watch(strategy: ParameterServerStrategy) -> None:
    """Close `strategy` at the end of the program, unless it was closed before. **Local.**"""
    _open.add(strategy)


def forget(strategy: ParameterServerStrategy) -> None:
    """Drop a strategy that was closed. **Local.**"""
    _open.forget(strategy)


def has_open() -> bool:
    """Tell whether this process has a strategy over several ranks that was not closed."""
    return _open.has_any()


def _failure(strategy: ParameterServerStrategy) -> str:
    """Return the error that ends the program, which `shutdown` has noted, or nothing."""
    health = strategy.job.health
    return health.broken or health.peers.last_failure
