"""Make a sharded variable, and compare its value."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.sharded.partitioning import partitioned
from mpistrat.tables.partitioners import FixedShardsPartitioner
from mpistrat.types import ArrayLike

__all__ = ["WHOLE", "make", "same"]

WHOLE = np.arange(26, dtype=np.float32).reshape(13, 2)


def same(actual: ArrayLike, expected: ArrayLike) -> None:
    """Check that two values have the same elements, dtype and shape."""
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), strict=True)


def make(value: Any = WHOLE, parts: int = 5, **options: Any) -> Any:
    """Return a variable in parts, made in the scope that this is in."""
    options = {"initial_value": value, "name": "w", **options}
    partitioner = FixedShardsPartitioner(parts)
    return partitioned(lambda all_: [Variable(**one) for one in all_], options, partitioner)
