"""Find the rows that an index takes from each part of a sharded variable."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np

__all__ = ["is_basic", "rows_within"]


def is_basic(key: Any) -> bool:
    """Tell whether NumPy takes `key` for a number, a slice, None or an ellipsis."""
    is_number = isinstance(key, (int, np.integer)) and not isinstance(key, bool)
    return is_number or key is None or isinstance(key, (slice, EllipsisType))


def rows_within(rows: range, start: int, stop: int) -> slice | None:
    """Return which of `rows` are from `start` to `stop`, counted from `start`; None for none."""
    up = rows if rows.step > 0 else rows[::-1]
    # -(-a // b) is a / b rounded up: the first of `up` that is not below `start`.
    first = max(0, -((up.start - start) // up.step))
    some = up[first : max(first, -((up.start - stop) // up.step))]
    if not some:
        return None
    low, high = some[0] - start, some[-1] - start
    if rows.step > 0:
        return slice(low, high + 1, rows.step)
    # Down to row 0 there is no stop: -1 would mean the last row.
    return slice(high, low - 1 if low else None, rows.step)
