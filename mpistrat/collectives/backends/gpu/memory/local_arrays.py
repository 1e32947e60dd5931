"""Sum and concatenate arrays of this process on one GPU, each by a single launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.on_device import contiguous
from mpistrat.collectives.backends.gpu.kernels import movement
from mpistrat.collectives.backends.gpu.kernels.reductions import MAX_RANKS, slice_reduce
from mpistrat.types import Array

__all__ = ["concatenated", "summed"]


def summed(arrays: Sequence[Any]) -> Array:
    """Return the sum of arrays in their order, in new memory. **Local.**

    Launched on the current stream, and not waited for.

    Parameters
    ----------
    arrays
        At least one, of CuPy, all on the current GPU, of one shape and dtype. Half types are
        accumulated in float32 and rounded once for each 16 arrays.
    """
    total: Any = np.empty_like(arrays[0], order="C")
    flat = [contiguous(one) for one in arrays]
    slice_reduce("sum", total.dtype, _addresses(flat[:MAX_RANKS]), [total.data.ptr], 0, total.size)
    for start in range(MAX_RANKS, len(flat), MAX_RANKS - 1):
        more = [total, *flat[start : start + MAX_RANKS - 1]]
        slice_reduce("sum", total.dtype, _addresses(more), [total.data.ptr], 0, total.size)
    found: Array = total
    return found


def concatenated(arrays: Sequence[Any], axis: int) -> Array:
    """Join arrays along an axis, along which their lengths may differ, in new memory. **Local.**

    Launched on the current stream, and not waited for.

    Parameters
    ----------
    arrays
        At least one, of CuPy, all on the current GPU, of one dtype.
    axis
        From 0.
    """
    shape = list(arrays[0].shape)
    shape[axis] = sum(one.shape[axis] for one in arrays)
    whole: Any = np.empty_like(arrays[0], shape=tuple(shape), order="C")
    movement.concatenate([contiguous(one) for one in arrays], axis, whole)
    found: Array = whole
    return found


def _addresses(arrays: Sequence[Any]) -> list[int]:
    return [one.data.ptr for one in arrays]
