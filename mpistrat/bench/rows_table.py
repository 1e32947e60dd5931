"""Print the rows of a benchmark as a table, and write them as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.row import Row
from mpistrat.bench.sizes import format_bytes

__all__ = ["report", "rows_table"]

_WIDTH = 200  # mpirun shows a width that is not the terminal's; tables take what they need
_HEADERS = ("median us", "min us", "p99 us", "algbw", "busbw")

_LEGEND = (
    "Times are those of the slowest rank, over rounds in which all sides took turns; algbw and"
    " busbw in GB/s of the median; 'over X': how many times faster than X (median of the rounds'"
    " ratios)."
)


def report(tables: Iterable[Iterable[Row]], rank: int, json: Path | None) -> bool:
    """Measure rows by iterating; print them and append them to a file, on rank 0. **Collective.**

    Returns
    -------
    bool
        Whether all answers were right; a row with a wrong one is the last that is measured.
    """
    console = Console(quiet=rank != 0, highlight=False, width=_WIDTH)
    for table in tables:
        rows: list[Row] = []
        for row in table:
            rows.append(row)
            if json is not None and rank == 0:
                write_lines(json, row.records())
            if row.wrong:
                break
        console.print(rows_table(rows), "", sep="\n")
        if rows[-1].wrong:
            console.print("\n".join(rows[-1].wrong), soft_wrap=True)
            return False
    console.print(_LEGEND, soft_wrap=True)
    return True


def rows_table(rows: Sequence[Row]) -> Table:
    """Return the rows, a line for each side."""
    bases = list(
        dict.fromkeys(label.text for row in rows for label in row.labels if label.is_base)
    )
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    for header in ("op", "dtype", "bytes", "side"):
        table.add_column(header, no_wrap=True)
    for header in (*_HEADERS, *(f"over {base}" for base in bases)):
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        for index in range(len(row.labels)):
            table.add_row(*_cells(row, index, bases))
    return table


def _cells(row: Row, index: int, bases: Sequence[str]) -> list[str]:
    label, timing = row.labels[index], row.timings[index]
    times = (timing.median_us, timing.min_us, timing.p99_us)
    speedups = row.speedups(index)
    name = label.text if row.correct[index] else f"{label.text} WRONG"
    task = row.task
    return [
        *(label.op, str(task.dtype), format_bytes(task.nbytes), name),
        *(f"{time:.2f}" for time in times),
        *(f"{bandwidth:.3f}" for bandwidth in row.bandwidths(index)),
        *(f"{speedups[base]:.2f}x" if base in speedups else "" for base in bases),
    ]
