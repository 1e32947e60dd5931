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
    rows
        The row of the table of each group, ascending.
    starts
        One more than there are groups.
    positions
        Rows of the values, within each group in ascending order.
    """

    rows: Array
    starts: Array
    positions: Array


def grouped(indices: Array, num_rows: int) -> Groups:
    """Group positions by their row.

    Raises
    ------
    UsageError
        An index is not a row of the table.
    """
    wrong = (indices < 0) | (indices >= num_rows)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise UsageError(
            f"index {int(indices[at])} at position {at}; expected 0 to {num_rows - 1}"
        )
    positions = np.argsort(indices, kind="stable")
    ordered = indices[positions]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: len(ordered)]
    ends = np.append(starts, len(ordered))
    return Groups(*(part.astype(np.uint64) for part in (ordered[starts], ends, positions)))


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

    flat = cupy.asarray(np.concatenate(groups))  # one copy; memory of this stream until the launch
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
