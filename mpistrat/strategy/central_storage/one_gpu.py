"""`OneGpuExtended`: variables of `CentralStorageStrategy` on the GPU of its only replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import on_device
from mpistrat.strategy.gpu_extended import GpuExtended
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.values import DistributedValues
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.gpu import GpuVariable
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy

__all__ = ["OneGpuExtended"]


class OneGpuExtended(GpuExtended):
    """Keep variables on the GPU of the only replica; changes run with it as the current GPU.

    Parameters
    ----------
    strategy, communicator, devices
        As of `StrategyExtended`; of one rank and one device.
    gpu
        The index of that device.
    """

    def __init__(
        self, strategy: Strategy, communicator: Communicator, devices: tuple[str, ...], gpu: int
    ) -> None:
        super().__init__(strategy, communicator, devices)
        self._gpu = gpu

    def new_variable(self, value: Array, options: dict[str, Any]) -> Variable:
        """Make the one array. **Local.**"""
        variable = self.new_copy(initial_value=value, **options)
        variable.distribute_strategy = self._strategy
        return variable

    def new_copy(self, **options: Any) -> Variable:
        """Make an array on the GPU."""
        return GpuVariable(self._gpu, **options)

    def update_components(
        self, var: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Call `fn` with the GPU as the current one."""
        with on_device.on_gpu(self._gpu):
            return super().update_components(var, fn, args, kwargs)

    def change_rows(
        self,
        var: Variable,
        kept: Sequence[Variable],
        change: Callable[..., None],
        gradient: Any,
    ) -> None:
        """Change `var` on the GPU, by a gradient that is there already or is carried there."""
        if isinstance(gradient, DistributedValues):
            gradient = gradient.values[0]
        with on_device.on_gpu(self._gpu):
            is_rows = isinstance(gradient, IndexedSlices)
            there = _Slices(gradient) if is_rows else on_device.placed(gradient)
            super().change_rows(var, kept, change, there)


class _Slices(IndexedSlices):
    """A gradient of some rows on the current GPU, each of them once.

    Parameters
    ----------
    slices
        On the host.
    """

    def __init__(self, slices: IndexedSlices) -> None:
        # Without the base's __init__, which would bring the arrays to the host.
        once = slices.summed()
        self.values, self.indices = on_device.placed(once.values), on_device.placed(once.indices)
        self.dense_shape = once.dense_shape

    def summed(self) -> IndexedSlices:
        """Return itself: the rows were summed before they moved to the GPU."""
        return self
