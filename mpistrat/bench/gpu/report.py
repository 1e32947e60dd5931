"""Print the rows of the case ``gpu``, and write them as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mpistrat.bench.gpu.allreduce import AllreduceRow
from mpistrat.bench.gpu.bars import Bar, told
from mpistrat.bench.gpu.device import has_bars, is_pretended
from mpistrat.bench.gpu.kernels import KernelRow
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.sizes import format_bytes

__all__ = ["Report"]

_WIDTH = 220  # mpirun shows a width that is not the terminal's; tables take what they need

_KERNELS_LEGEND = (
    "GPU us: a call on the GPU, by events on a held stream; call us: by the host's clock, with"
    " Python and the launch (medians). GB/s: bytes that have to be read and written, over GPU us;"
    " of copy: against a copy on the GPU that moves as many. faster: how many times faster"
    " mpistrat is, on the GPU / by the host's clock."
)
_ALLREDUCE_LEGEND = (
    "Times by the host's clock, of the slowest rank; GB/s of the median. of bound: against a copy"
    " that reads and writes as much as all ranks together have to (ranks that share a GPU)."
)
_PRETENDED = "This GPU is a pretended one: the answers above were checked, the times mean nothing."


@dataclass
class Report:
    """Where rows go: a console and a file on rank 0, nowhere on the others.

    Attributes
    ----------
    facts
        Of the GPU; go with every record.
    rank
        This rank.
    json
        The file, or None.
    wrong
        A line for each wrong answer so far.
    bars
        Those of all rows so far.
    """

    facts: Mapping[str, Any]
    rank: int
    json: Path | None
    wrong: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the console; the other ranks print nothing."""
        self._console = Console(quiet=self.rank != 0, highlight=False, width=_WIDTH)
        self._has_bars = has_bars(dict(self.facts))

    def say(self, line: str) -> None:
        """Print a line on rank 0."""
        self._console.print(line, soft_wrap=True, markup=False)

    def kernels(self, rows: Iterable[KernelRow]) -> None:
        """Measure rows by iterating; write each, and print a table for each family. **Local.**"""
        for _, family in groupby(rows, lambda row: row.family):
            self._console.print(self._family(family), "", sep="\n")
        self._console.print(_KERNELS_LEGEND, "", sep="\n", soft_wrap=True)

    def _family(self, rows: Iterable[KernelRow]) -> Table:
        table = _table("kernel", "of", "bytes", "side")
        _figures(table, "GPU us", "call us", "GB/s", "of copy", "faster", left=("bars",))
        for row in rows:
            self._write(row.records(has_bars=self._has_bars))
            self.wrong += [f"{row.family}, {row.what}: {name} is wrong" for name in row.wrong]
            for name, why in row.left_out.items():
                self.say(f"{row.family}, {row.what}: {name} left out, {why}")
            device, calls = row.speedups()
            bars = self._judged(row.bars())
            for index, side in enumerate(row.sides):
                first = index == 0
                name = f"{side.name} WRONG" if side.name in row.wrong else side.name
                ratio = "" if first else f"{device[side.name]:.2f}x / {calls[side.name]:.2f}x"
                table.add_row(
                    *((row.family, row.what, format_bytes(row.nbytes)) if first else ("",) * 3),
                    name,
                    f"{row.on_device[index].median_us:.2f}",
                    f"{row.on_host[index].median_us:.2f}",
                    f"{row.gbps(index):.1f}",
                    f"{row.share(index):.0%}",
                    ratio,
                    told(bars) if first else "",
                )
        return table

    def allreduce(self, rows: Iterable[AllreduceRow]) -> None:
        """Measure rows by iterating; print and write them. **Collective.**"""
        table = _table("op", "ranks", "bytes", "side")
        _figures(
            table,
            *("median us", "min us", "p99 us", "algbw", "busbw", "of bound", "over staged"),
            left=("bars",),
        )
        for one in rows:
            row = one.row
            self._write(one.records(has_bars=self._has_bars))
            self.wrong += row.wrong
            for index, label in enumerate(row.labels):
                share, timing = one.share(index), row.timings[index]
                over = one.over(index, "staged")
                table.add_row(
                    *("allreduce", str(row.task.size), format_bytes(row.task.nbytes)),
                    label.text if row.correct[index] else f"{label.text} WRONG",
                    *(f"{us:.2f}" for us in (timing.median_us, timing.min_us, timing.p99_us)),
                    *(f"{bandwidth:.3f}" for bandwidth in row.bandwidths(index)),
                    "" if share is None else f"{share:.0%}",
                    f"{over:.2f}x" if over else "",
                    told(self._judged(one.bars(index))),
                )
        self._console.print(table, _ALLREDUCE_LEGEND, "", sep="\n", soft_wrap=True)

    def conclude(self) -> bool:
        """Print what the times mean, and what was wrong; return whether all answers were right."""
        if is_pretended(dict(self.facts)):
            self.say(_PRETENDED)
        elif not self._has_bars:
            self.say("The bars are for GPUs of NVIDIA; this one is held against none.")
        elif self.bars:
            met = sum(bar.is_met for bar in self.bars)
            self.say(f"Bars of an H100 or H200: {met} met, {len(self.bars) - met} missed.")
        for line in self.wrong:
            self.say(line)
        return not self.wrong

    def _judged(self, bars: list[Bar]) -> list[Bar]:
        if not self._has_bars:
            return []
        self.bars += bars
        return bars

    def _write(self, records: list[dict[str, Any]]) -> None:
        if self.json is not None and self.rank == 0:
            write_lines(self.json, [{**record, **self.facts} for record in records])


def _table(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    for header in headers:
        table.add_column(header, no_wrap=True)
    return table


def _figures(table: Table, *headers: str, left: tuple[str, ...]) -> None:
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for header in left:
        table.add_column(header, no_wrap=True)
