"""`OneGpuExtended`: variables of `CentralStorageStrategy` on the GPU of its only replica."""

from __future__ import annotations

from typing import Any

from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.variables.base import Variable
from mpistrat.types import Array

__all__ = ["OneGpuExtended"]


class OneGpuExtended(StrategyExtended):
    """Keep each variable as one array on the GPU of the only replica."""

    def new_variable(self, value: Array, options: dict[str, Any]) -> Variable:
        """Make the one array. **Local.**"""
        variable = self.new_copy(0, initial_value=value, **options)
        variable.distribute_strategy = self._strategy
        return variable
