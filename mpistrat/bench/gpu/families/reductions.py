"""Sum several buffers in one pass: into one of them, or into as many as there are."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from mpistrat.bench.gpu.comparison import OURS, Comparison, Planned, Plans, Side, on_host, pattern
from mpistrat.bench.gpu.families.torch_views import tensors, torch_sides
from mpistrat.collectives.backends.gpu.kernels.reductions import slice_reduce

__all__ = ["planned"]

_DTYPE = np.dtype(np.float32)


def planned(sizes: Sequence[int], buffers: Sequence[int]) -> Plans:
    """Yield a row for each number of buffers and size, with one result and with several."""
    for family in ("reduce", "slice sum"):
        for count in buffers:
            for nbytes in sizes:
                results = 1 if family == "reduce" else count
                # Sources, results, as much again for the copy, and temporary sums.
                needed = (2 * (count + results) + 2) * nbytes
                make = partial(_make, family, count, results, nbytes)
                yield Planned(family, f"{count} buffers", nbytes, needed, make)


def _make(family: str, count: int, num_results: int, nbytes: int) -> Comparison:
    import cupy

    size = max(1, nbytes // _DTYPE.itemsize)
    hosts = [pattern(size, shift) for shift in range(count)]
    want = reduce(operator.add, hosts)
    sources = [cupy.asarray(one) for one in hosts]
    results = [cupy.empty(size, _DTYPE) for _ in range(num_results)]
    given, taken = ([one.data.ptr for one in some] for some in (sources, results))

    def ours() -> None:
        slice_reduce("sum", _DTYPE, given, taken, 0, size)

    def reset() -> None:
        for one in results:
            one.fill(np.nan)

    def is_right(answer: Any) -> bool:
        found = results if answer is None else [answer]
        return all(np.array_equal(on_host(one), want) for one in found)

    sides = [Side(OURS, "mpistrat", ours), _expression("cupy", sources, results)]
    sides += torch_sides(
        lambda _: _expression("torch", tensors(sources), tensors(results)).call,
        launches=sides[1].launches,
    )
    moved = (count + num_results) * size * _DTYPE.itemsize
    what = f"{count} buffers"
    return Comparison(family, what, "float32", nbytes, moved, sides, reset, is_right)


def _expression(library: Any, sources: list[Any], results: list[Any]) -> Side:
    """Return ``a + b + c + d``, as a user writes it; copied where there are several results."""

    def add() -> Any:
        total = reduce(operator.add, sources)
        if len(results) == 1:
            return total
        for one in results:
            one[...] = total
        return None

    extra = len(results) if len(results) > 1 else 0
    return Side(library, library, add, launches=len(sources) - 1 + extra)
