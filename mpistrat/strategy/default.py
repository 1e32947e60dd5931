"""The default strategy, outside of all scopes: one replica, nothing distributed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from mpistrat.cluster.devices.names import named_devices
from mpistrat.collectives.single_process import single_process_communicator
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.one_device import OneDeviceExtended
from mpistrat.strategy.variables import colocation

__all__ = ["default_strategy"]


class _DefaultExtended(OneDeviceExtended):
    @contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
        """Make variables in one part in this block; takes any variable, as TensorFlow does."""
        with colocation.beside(colocate_with_variable):
            yield


class _DefaultStrategy(Strategy):
    """The strategy that ``get_strategy()`` returns outside of every scope."""

    def __init__(self) -> None:
        alone = single_process_communicator()
        self._extended = _DefaultExtended(self, alone, [named_devices(["CPU:0"], 0)])

    def close(self) -> None:
        """Do nothing: there is always a default strategy."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        pass  # stays usable after a with block, as after close()


@lru_cache(maxsize=1)
def default_strategy() -> Strategy:
    """Return the default strategy of this process."""
    return _DefaultStrategy()
