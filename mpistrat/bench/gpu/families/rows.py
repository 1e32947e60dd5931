"""Add rows at random places of a table, some of them several times.

By indices on the GPU, as the other sides have them, and by those of the host. Ours are checked on
the GPU or known to be right: a call that checks them waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mpistrat.bench.gpu.comparison import OURS, Comparison, Planned, Plans, Side, pattern
from mpistrat.bench.gpu.families.torch_views import tensors, torch_sides
from mpistrat.collectives.backends.gpu.kernels.rows import scatter_add

__all__ = ["planned"]

_COLUMNS = 64
_THERE, _CHECKED, _BY_HOST = _KINDS = (
    "scatter-add",  # nobody looks for indices that are no rows
    "scatter-add, indices checked",
    "scatter-add, indices of the host",
)
_LAUNCHES = 8  # with a copy and what is cleared
_SHARE = 10  # of the table's rows one in so many is drawn


def planned(largest: int) -> Plans:
    """Yield a row for each kind of indices.

    Each has a table of the largest size, of which a tenth of the rows is added to.
    """
    for what in _KINDS:
        yield Planned("rows", what, largest, 4 * largest, partial(_make, largest, what))


def _make(nbytes: int, what: str) -> Comparison:
    import cupy

    num_rows = max(8, nbytes // 4 // _COLUMNS)
    start = pattern(num_rows * _COLUMNS).reshape(num_rows, _COLUMNS)
    indices = np.random.default_rng(1).integers(0, num_rows, max(4, num_rows // _SHARE))
    values = pattern(len(indices) * _COLUMNS, 2).reshape(len(indices), _COLUMNS)
    want = start.copy()
    np.add.at(want, indices, values)
    initial, table, added = cupy.asarray(start), cupy.asarray(start), cupy.asarray(values)
    there = cupy.asarray(indices)

    def add() -> None:
        cupy.add.at(table, there, added)

    given = indices if what == _BY_HOST else there
    ours = partial(scatter_add, table, given, added, are_checked=what != _CHECKED)
    sides = [Side(OURS, "mpistrat", ours, _LAUNCHES), Side("cupy", "cupy", add)]

    def make(_: Any) -> Callable[[], object]:
        into, places, rows = tensors([table, there, added])
        return partial(into.index_add_, 0, places, rows)

    sides += torch_sides(make)

    def reset() -> None:
        table[...] = initial

    def is_right(_: Any) -> bool:
        return np.array_equal(table.get(), want)

    moved = added.nbytes + 2 * len(np.unique(indices)) * _COLUMNS * 4
    row = ("rows", what, "float32", nbytes, moved)
    return Comparison(*row, sides, reset, is_right)
