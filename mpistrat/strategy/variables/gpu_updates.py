"""Update variables on a GPU by an optimizer's rule: all that can be by one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.collectives.backends.gpu.kernels.updates import Update, apply_rule, has_kernel
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.tables.rule import Rule

__all__ = ["GpuUpdate", "update_all"]


class GpuUpdate(NamedTuple):
    """A variable's memory, an optimizer's slots of it by name, and its gradient.

    Attributes
    ----------
    value, slots
        Arrays of CuPy on one GPU, of one shape; changed in place.
    gradient
        An array of that shape or `IndexedSlices`, wherever it is.
    """

    value: Any
    slots: Mapping[str, Any]
    gradient: Any


def update_all(rule: Rule, updates: Sequence[GpuUpdate], step: int, learning_rate: float) -> None:
    """Apply one step of an optimizer to variables on the current GPU. **Local.**

    Launched on the current stream, and not waited for. The results have the bits of the same
    step on the host.

    Parameters
    ----------
    rule
        Those of `mpistrat.tables.update_rules` update the variables of one pair of dtypes by one
        launch; another one is applied to one variable after the other.
    updates
        Of variables on this GPU.
    step, learning_rate
        As for `Rule.apply`.
    """
    whole = [_as_whole(rule, one) for one in updates if _covers_all(rule, one)]
    parts = [_Part.of(one) for one in updates if not _covers_all(rule, one)]
    every = [*whole, *(part.update for part in parts)]
    if has_kernel(rule):
        apply_rule(rule, [Update(*one) for one in every], step, learning_rate)
    else:
        for update in every:
            rule.apply(update.value, update.slots, update.gradient, step, learning_rate)
    for part in parts:
        part.put_back()


def _covers_all(rule: Rule, update: GpuUpdate) -> bool:
    """Tell whether all rows of a variable change: those without a gradient may coast on."""
    return not isinstance(update.gradient, IndexedSlices) or not rule.leaves_rows


def _as_whole(rule: Rule, update: GpuUpdate) -> GpuUpdate:
    """Return an update with a gradient of all elements, beside its variable."""
    gradient = update.gradient
    if _is_ready(gradient, update.value):
        return update
    if isinstance(gradient, IndexedSlices):
        once = _summed(update)
        gradient = np.zeros_like(update.value, dtype=once.values.dtype)
        gradient[on_device.placed(once.given_indices)] = on_device.placed(once.values)
    return update._replace(gradient=_floating(on_device.placed(gradient), update.value, rule))


def _summed(update: GpuUpdate) -> IndexedSlices:
    """Return a gradient with each row once. All are rows of the variable, which tells how many."""
    rows: IndexedSlices = update.gradient
    return rows.with_values(rows.values, update.value.shape).summed()


def _is_ready(gradient: Any, value: Any) -> bool:
    """Tell whether a gradient is what the kernel reads: most are, in each step."""
    return (
        type(gradient) is type(value)
        and gradient.data.device_id == value.data.device_id
        and gradient.flags.c_contiguous
        and _is_floating(gradient.dtype)
    )


@lru_cache(maxsize=64)
def _is_floating(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _floating(gradient: Any, value: Any, rule: Rule) -> Any:
    """Return a gradient in C order, of a floating dtype."""
    is_floating = _is_floating(gradient.dtype)
    wanted = gradient.dtype if is_floating else rule.slot_dtype(value.dtype)
    return on_device.contiguous(gradient.astype(wanted, copy=False))


class _Part(NamedTuple):
    """Rows of a variable to update, as arrays of their own, which go back to it afterwards."""

    whole: GpuUpdate
    rows: Any
    update: GpuUpdate

    @classmethod
    def of(cls, whole: GpuUpdate) -> _Part:
        once = _summed(whole)
        rows = on_device.placed(once.given_indices)
        slots = {name: slot[rows] for name, slot in whole.slots.items()}
        gradient = on_device.contiguous(on_device.placed(once.values))
        return cls(whole, rows, GpuUpdate(whole.value[rows], slots, gradient))

    def put_back(self) -> None:
        """Write the updated rows to the variable and to its slots."""
        self.whole.value[self.rows] = self.update.value
        for name, slot in self.whole.slots.items():
            slot[self.rows] = self.update.slots[name]
