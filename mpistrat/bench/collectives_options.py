"""Parse and check the options of the case ``collectives``: sizes, dtypes, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mpistrat.bench.harness.buffers import Memory
from mpistrat.bench.harness.expected_results import OPS, Task
from mpistrat.bench.options import parse_dtype
from mpistrat.errors import UsageError
from mpistrat.tables.reduction_ops import check_op, result_dtype

__all__ = ["Grid", "make_grid"]

_IN_PLACE = ("allreduce", "reduce", "bcast")


@dataclass(frozen=True)
class Grid:
    """The measured problems: a table for each op and dtype, a row for each size.

    Attributes
    ----------
    ops, dtypes, sizes
        The grid; `sizes` in bytes.
    reduction
        Of the operations that reduce.
    in_place
        Whether answers go where inputs were.
    memory
        Whose memory the buffers are.
    memcpy
        Whether an all-reduce is compared with a copy; None: from 1 MiB.
    new
        Whether results in new arrays are timed, too.
    """

    ops: Sequence[str]
    dtypes: Sequence[np.dtype]
    sizes: Sequence[int]
    reduction: str
    in_place: bool
    memory: Memory
    memcpy: bool | None = None
    new: bool = False

    def tables(self, rank: int, size: int) -> Iterator[list[Task]]:
        """Yield the tasks of each table; a barrier has neither dtype nor size."""
        for op in self.ops:
            in_place = self.in_place or op == "bcast"
            for dtype in self.dtypes[:1] if op == "barrier" else self.dtypes:
                sizes = [0] if op == "barrier" else self.sizes
                yield [Task(op, dtype, self.reduction, n, rank, size, in_place) for n in sizes]


def make_grid(
    table: tuple[Sequence[str], Sequence[str], Sequence[int]],
    reduction: str,
    in_place: bool,
    memory: Memory,
    memcpy: bool | None = None,
) -> Grid:
    """Build the grid of the options, or raise `UsageError`. **Local.**"""
    ops, names, sizes = table
    dtypes = [parse_dtype(name) for name in names]
    if unknown := [op for op in ops if op not in OPS]:
        raise UsageError(f"op {unknown[0]!r} is not known; expected {', '.join(OPS)}")
    for dtype in dtypes:
        check_op(reduction, dtype)
        if in_place and result_dtype(reduction, dtype) != dtype:
            raise UsageError(f"{reduction} of {dtype} is of another dtype: not with --in-place")
    allowed = {"--in-place": (in_place, _IN_PLACE), "--shared": (memory.is_shared, ("allreduce",))}
    for option, (is_given, able) in allowed.items():
        if is_given and (unable := [op for op in ops if op not in able]):
            raise UsageError(f"{option} is for {', '.join(able)}; got {unable[0]}")
    if in_place and memory.is_shared:
        raise UsageError("--shared: ranks that share their results cannot get them in place")
    return Grid(ops, dtypes, sizes, reduction, in_place, memory, memcpy)
