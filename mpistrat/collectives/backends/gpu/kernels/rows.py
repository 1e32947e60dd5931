"""Add rows to rows of a table on a GPU, in the same order in every run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.collectives.backends.gpu.kernels.launch import (
    THREADS,
    blocks_for,
    current_device,
    kernel,
    launch,
)
from mpistrat.errors import UsageError
from mpistrat.tables.row_order import write_order
from mpistrat.types import Array

__all__ = ["SCATTER_ADD", "Groups", "grouped", "scatter_add"]

SCATTER_ADD = np.dtype(
    [
        ("table", np.uint64),
        ("values", np.uint64),
        ("rows", np.uint64),
        ("starts", np.uint64),
        ("positions", np.uint64),
        ("num_groups", np.uint64),
        ("columns", np.uint64),
    ]
)
"""``ScatterAdd`` of scatter_add.cu."""


class Groups(NamedTuple):
    """Which rows are added to which: group g is ``positions[starts[g]:starts[g + 1]]``.

    Attributes
    ----------
    flat
        `rows`, `starts` and `positions` one after another, of dtype uint64: one copy takes all.
    num_groups
        How many rows of the table are added to.
    """

    flat: Array
    num_groups: int

    @property
    def rows(self) -> Array:
        """The row of the table of each group, ascending."""
        return self.flat[: self.num_groups]

    @property
    def starts(self) -> Array:
        """Where each group begins in `positions`, and at the end the number of positions."""
        return self.flat[self.num_groups : 2 * self.num_groups + 1]

    @property
    def positions(self) -> Array:
        """Rows of the values, within each group in ascending order."""
        return self.flat[2 * self.num_groups + 1 :]


def grouped(indices: Array, num_rows: int) -> Groups:
    """Group positions by their row.

    Raises
    ------
    UsageError
        An index is not a row of the table.
    """
    _check(indices, num_rows)
    count = len(indices)
    # Room for a group at each position. What is used is at the end, and its beginning is scratch
    # memory until then: fresh memory costs as much time as the sort.
    memory = np.empty(3 * count + 1, np.uint64)
    ordered = memory[:count]
    write_order(indices, num_rows, ordered, memory[2 * count + 1 :])
    is_first = np.ones(count, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    (starts,) = is_first.nonzero()
    groups = Groups(memory[2 * (count - len(starts)) :], len(starts))
    groups.rows[:] = ordered[starts]
    groups.starts[:-1], groups.starts[-1] = starts, count
    return groups


def _check(indices: Array, num_rows: int) -> None:
    """Raise `UsageError` unless all indices are rows of the table."""
    if len(indices) == 0 or (indices.min() >= 0 and indices.max() < num_rows):
        return
    at = int(np.argmax((indices < 0) | (indices >= num_rows)))
    raise UsageError(f"index {int(indices[at])} at position {at}; expected 0 to {num_rows - 1}")


def scatter_add(table: Any, indices: Array, values: Any) -> None:
    """Add each row of `values` to the row of `table` that its index names. **Local.**

    What goes to one row is added in the order of the positions. Launched on the current stream,
    and not waited for.

    Parameters
    ----------
    table, values
        Arrays of CuPy of one dtype, in C order, of shapes [rows, ...] and [n, ...].
    indices
        In memory of the host, of shape [n]; a row may come more than once.
    """
    columns = table.size // max(len(table), 1)
    if len(indices) == 0 or columns == 0:
        return
    groups = grouped(indices, len(table))
    import cupy

    flat = cupy.asarray(groups.flat)  # memory of this stream until the launch
    arguments = np.zeros((), SCATTER_ADD)
    arguments["table"], arguments["values"] = table.data.ptr, values.data.ptr
    arguments["rows"] = flat.data.ptr
    arguments["starts"] = flat.data.ptr + groups.rows.nbytes
    arguments["positions"] = flat.data.ptr + groups.rows.nbytes + groups.starts.nbytes
    arguments["num_groups"], arguments["columns"] = len(groups.rows), columns
    device = current_device()
    accesses = -(-len(groups.rows) * columns * table.itemsize // 16)
    function = kernel(device, "scatter_add", source.type_name(table.dtype))
    launch(function, blocks_for(device, -(-accesses // THREADS)), arguments)
