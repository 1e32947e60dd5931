"""Write collectives as OSU's benchmarks and nccl-tests do: a table for each side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mpistrat.bench.export.measurement import Measurement

__all__ = ["nccl_tests_lines", "osu_lines"]

_OSU_NAMES = {
    "allreduce": "Allreduce",
    "reduce": "Reduce",
    "bcast": "Bcast",
    "allgather": "Allgather",
    "gather": "Gather",
    "scatter": "Scatter",
    "reduce_scatter": "Reduce_scatter",
    "alltoall": "Alltoall",
    "barrier": "Barrier",
}
_NCCL_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
}
_ROOTED = ("reduce", "bcast", "gather", "scatter")
_BY_PIECE = ("allgather", "gather", "scatter", "alltoall")  # OSU counts one rank's piece
_COUNT_OF_PIECE = (*_BY_PIECE, "reduce_scatter")  # nccl-tests does in its column of elements


def osu_lines(found: Iterable[Measurement]) -> Iterator[str]:
    """Yield tables in the columns of ``osu_allreduce -f``; the first is our median, not a mean."""
    for rows in _tables(found):
        first = rows[0]
        name = _OSU_NAMES.get(str(first.record["op"]), str(first.record["op"]))
        yield f"# OSU MPI {name} Latency Test, measured by mpistrat: {_title(first)}"
        yield "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"
        for one in rows:
            times = f"{one.median_us:>16.2f}{one.min_us:>18.2f}{one.max_us:>18.2f}"
            size = one.nbytes // (_pieces(one, _BY_PIECE))
            yield f"{size:<10}{times}{one.record.get('rounds', 0):>12}"
        yield ""


def nccl_tests_lines(found: Iterable[Measurement]) -> Iterator[str]:
    """Yield tables in the columns of nccl-tests; times are medians of the slowest rank."""
    for rows in _tables(found):
        yield f"# {_title(rows[0])}"
        yield "#       size         count      type   redop    root  " + "  ".join(
            f"{'time':>8}{'algbw':>8}{'busbw':>8} #wrong" for _ in range(2)
        )
        yield (
            "#        (B)    (elements)"
            + " " * 26
            + "(out-of-place, then in-place: us, GB/s, GB/s)"
        )
        yield from map(_nccl_row, rows)
        yield ""


def _nccl_row(one: Measurement) -> str:
    record, dtype = one.record, str(one.record["dtype"])
    count = one.nbytes // _pieces(one, _COUNT_OF_PIECE) // _itemsize(dtype)
    root = 0 if record["op"] in _ROOTED else -1
    wrong = 0 if record.get("correct") else 1
    figures = (
        f"{one.median_us:>8.2f}{one.number('algbw_GBps'):>8.2f}{one.number('busbw_GBps'):>8.2f}"
    )
    mine, none = f"{figures} {wrong:>6}", f"{'N/A':>8}{'N/A':>8}{'N/A':>8} {'N/A':>6}"
    sides = (none, mine) if record.get("in_place") else (mine, none)
    heads = f"{one.nbytes:>12}{count:>14}{_NCCL_TYPES.get(dtype, dtype):>10}"
    return f"{heads}{record.get('reduction') or 'none':>8}{root:>8}  " + "  ".join(sides)


def _pieces(one: Measurement, ops: Sequence[str]) -> int:
    return one.point.setup.ranks if one.record["op"] in ops else 1


def _tables(found: Iterable[Measurement]) -> list[Sequence[Measurement]]:
    """Return the measurements of collectives, those of one table together, by size."""
    tables: dict[tuple[str, str], list[Measurement]] = {}
    for one in found:
        if one.point.setup.case == "collectives" and _is_whole(one.record):
            tables.setdefault((_title(one), str(one.point.repeat)), []).append(one)
    return [sorted(rows, key=lambda one: one.nbytes) for rows in tables.values()]


def _title(one: Measurement) -> str:
    record, setup = one.record, one.point.setup
    return (
        f"{record['op']} of {record['dtype']}, {record['side']},"
        f" {setup.place}, run {one.point.repeat}"
    )


def _is_whole(record: Mapping[str, Any]) -> bool:
    has_texts = all(isinstance(record.get(name), str) for name in ("op", "side", "dtype"))
    return has_texts and _itemsize(str(record["dtype"])) > 0


def _itemsize(dtype: str) -> int:
    """Return the bytes of an element, 0 for what is no dtype."""
    if dtype == "bfloat16":
        return 2
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return 0
