"""Print the figures of a training loop as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_record"]

_SHOWN = 16  # ranks; of more, the slowest ones
_LEGEND = (
    "Times in ms. A step's are those of its slowest rank. Parts are medians over steps of the"
    " means over ranks; communication: the least time of any rank in the collective; idle: what"
    " ranks spend longer there, waiting for others. By rank: the rank's own time in a step,"
    " outside of the collective."
)


def print_record(console: Console, record: Mapping[str, Any]) -> None:
    """Print what a case wrote as its record."""
    console.print(
        f"{record['case']}: {record['network']} ({record['family']}),"
        f" {record['parameters'] / 1e6:.2f} M float32; global batch: {record['global_batch']},"
        f" of a rank: {record['rank_batch']:g}; ranks: {record['ranks']},"
        f" nodes: {record['nodes']}",
        _steps(record),
        "",
        f"loss {record['loss_first']:.4f} at the first step, {record['loss_last']:.4f} at the"
        " last one",
        sep="\n",
        soft_wrap=True,
    )
    if record["by_rank"] is not None:
        console.print("", _ranks(record["by_rank"]), "", _LEGEND, sep="\n", soft_wrap=True)


def _steps(record: Mapping[str, Any]) -> Table:
    parts = record["parts_us"] or {}
    times = {f"step {name}": time_us for name, time_us in record["time_us"].items()}
    columns = {"step": times.pop("step median"), **times, **parts}
    table = _table([*columns, "examples/s"])
    table.add_row(*map(_ms, columns.values()), f"{record['examples_per_s']:.0f}")
    return table


def _ranks(boxes: Sequence[Mapping[str, Any]]) -> Table:
    slowest = sorted(boxes, key=lambda box: box["median"], reverse=True)[:_SHOWN]
    table = _table(["rank", "host", "min", "q1", "median", "q3", "max"])
    for box in sorted(slowest, key=lambda box: int(box["rank"])):
        numbers = (_ms(box[name]) for name in ("min", "q1", "median", "q3", "max"))
        table.add_row(str(box["rank"]), box["host"], *numbers)
    return table


def _table(headers: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.3f}"
