"""Sum rows that have the same number on a GPU, as `IndexedSlices.summed` does on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import row_order
from mpistrat.collectives.backends.gpu.kernels.row_order import Ordered
from mpistrat.collectives.backends.gpu.kernels.rows import add_ordered

__all__ = ["can_sum", "row_sums"]


def can_sum(count: int, num_rows: int) -> bool:
    """Tell whether `row_sums` takes so many rows with numbers below `num_rows`."""
    return 0 < count <= row_order.MAX_INDICES and sum(row_order.key_bits(count, num_rows)) <= 64


def row_sums(indices: Any, values: Any, num_rows: int) -> tuple[Any, Any] | None:
    """Return each row number once, ascending, and the sum of its rows. **Local.**

    The sums have the order and the bits of those on the host. Waits for the current stream: how
    many numbers there are is the results' length.

    Parameters
    ----------
    indices, values
        Arrays of CuPy on the current GPU, of shapes [n] and [n, ...], the second in C order.
    num_rows
        All indices are from 0 to `num_rows` - 1, and `can_sum` is true of both numbers.

    Returns
    -------
    tuple
        New arrays on the GPU, of the dtypes of `indices` and `values`; None if each number comes
        once already, in ascending order.
    """
    import cupy

    keys, shift, *_ = row_order.order(indices, num_rows, are_checked=True)
    rows = keys >> np.uint64(shift)
    is_first = cupy.ones(len(keys), np.bool_)
    cupy.not_equal(rows[1:], rows[:-1], out=is_first[1:])
    firsts = cupy.flatnonzero(is_first)
    if len(firsts) == len(keys) and bool((indices[1:] > indices[:-1]).all()):
        return None
    # The same keys, with the place of each row's sum in place of the row.
    keys &= np.uint64(2**shift - 1)
    keys |= (cupy.cumsum(is_first) - 1).astype(np.uint64) << np.uint64(shift)
    sums = cupy.zeros_like(values, shape=(len(firsts), *values.shape[1:]), order="C")
    add_ordered(sums, Ordered(keys, shift, None, None), values)
    return rows[firsts].astype(indices.dtype), sums
