"""Report a replay: a record, and a table by operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from mpistrat import Communicator
from mpistrat.bench.timeline_replay.playback import Playback
from mpistrat.bench.timeline_replay.recorded_call import Recording

__all__ = ["print_record", "record_of"]

_LEGEND = (
    "Times in ms: replayed ones are those of the slowest rank, medians over rounds; recorded ones"
    " are those of one rank. total: of all calls of an operation; call: the median of a call."
)


def record_of(
    recording: Recording, playback: Playback, communicator: Communicator
) -> dict[str, Any]:
    """Return what was recorded and replayed, for a JSON line. **Local.**"""
    topology, timing = communicator.topology, playback.timing
    recorded_us = recording.calls_us + (recording.gaps_us if playback.with_gaps else 0.0)
    statistics = ("min", "median", "p99", "max")
    return {
        "case": "replay",
        "source": recording.source,
        "side": "mpistrat",
        "kind": "backend",
        "backend": communicator.backend.name,
        "calls": len(recording.calls),
        "bytes": sum(call.kind.nbytes for call in recording.calls),
        "ranks": topology.size,
        "nodes": topology.num_nodes,
        "recorded_ranks": recording.ranks,
        "left_out": recording.left_out,
        "gaps": playback.with_gaps,
        "gaps_us": round(recording.gaps_us, 3),
        "recorded_us": round(recorded_us, 3),
        "rounds": len(timing.rounds_us),
        "time_us": {name: round(getattr(timing, f"{name}_us"), 3) for name in statistics},
        "by_op": playback.by_op(recording),
        "correct": True,  # else nothing is timed
    }


def print_record(console: Console, record: Mapping[str, Any]) -> None:
    """Print a record as a table."""
    gaps = f"with gaps of {_ms(record['gaps_us'])} ms" if record["gaps"] else "without gaps"
    left_out = f", left out: {record['left_out']}" if record["left_out"] else ""
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    table.add_column("op", no_wrap=True)
    for header in ("calls", "bytes", "total", "recorded", "call", "recorded"):
        table.add_column(header, justify="right", no_wrap=True)
    for op, one in record["by_op"].items():
        names = ("total_us", "recorded_total_us", "median_us", "recorded_median_us")
        times = (_ms(one[name]) for name in names)
        table.add_row(op, str(one["calls"]), str(one["bytes"]), *times)
    console.print(
        f"replay of {record['source']} {gaps}: {record['calls']} calls{left_out}, recorded by"
        f" {record['recorded_ranks']} ranks; backend: {record['backend']}, ranks:"
        f" {record['ranks']}, nodes: {record['nodes']}",
        f"{_ms(record['time_us']['median'])} ms, recorded: {_ms(record['recorded_us'])} ms",
        table,
        "",
        _LEGEND,
        sep="\n",
        soft_wrap=True,
    )


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.3f}"
