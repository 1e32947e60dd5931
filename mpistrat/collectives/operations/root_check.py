"""Check the `root` argument of a collective."""

from __future__ import annotations

import numpy as np

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = ["check_root"]


def check_root(root: int, size: int, what: str) -> None:
    """Raise if `root` is no rank of a communicator of `size` ranks."""
    if isinstance(root, bool) or not isinstance(root, (int, np.integer)):
        raise ArgumentTypeError(f"{what}: root={root!r} is a {type(root).__name__}; expected int")
    if not 0 <= root < size:
        raise UsageError(f"{what}: root={root} is no rank; expected 0 to {size - 1}")
