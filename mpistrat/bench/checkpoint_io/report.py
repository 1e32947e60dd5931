"""Report the times of a checkpoint: records, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from mpistrat import Communicator
from mpistrat.bench.checkpoint_io.measurement import OURS
from mpistrat.bench.harness.bandwidth import algbw_gbps
from mpistrat.bench.harness.timing import Timing
from mpistrat.bench.sizes import format_bytes

__all__ = ["print_records", "records"]

_LEGEND = (
    "Times in ms on the slowest rank; GB/s of the bytes of the variables, once. A save ends when"
    " all is on the disk. A restore reads what the operating system still has in memory."
)


def records(
    times: Mapping[tuple[str, str], Timing], nbytes: int, communicator: Communicator
) -> list[dict[str, Any]]:
    """Return a record for each side and op, for the JSON lines. **Local.**"""
    topology = communicator.topology
    found = []
    for (side, op), timing in times.items():
        base = next(one for (name, what), one in times.items() if what == op and name != side)
        statistics = ("min", "median", "p99", "max")
        record = {
            "case": "io",
            "op": op,
            "side": _side(side, op),
            "kind": "backend" if side == OURS else "bound",
            "ranks": topology.size,
            "nodes": topology.num_nodes,
            "bytes": nbytes,
            "rounds": len(timing.rounds_us),
            "time_us": {name: round(getattr(timing, f"{name}_us"), 3) for name in statistics},
            "GBps": round(algbw_gbps(nbytes, timing.median_us), 6),
            "speedup": {} if side != OURS else {"bound": round(timing.speedup(base), 4)},
            "correct": True,  # else nothing is timed
        }
        found.append(record)
    return found


def _side(side: str, op: str) -> str:
    if side == OURS:
        return "mpistrat"
    return side if op == "save" else "np.load by rank 0"


def print_records(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """Print the records as a table."""
    first = found[0]
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    table.add_column("op", no_wrap=True)
    table.add_column("side", no_wrap=True)
    for header in ("median", "min", "max", "GB/s", "over bound"):
        table.add_column(header, justify="right", no_wrap=True)
    for one in found:
        times = (f"{one['time_us'][name] / 1e3:.2f}" for name in ("median", "min", "max"))
        ratios = (f"{value:.2f}x" for value in one["speedup"].values())
        table.add_row(one["op"], one["side"], *times, f"{one['GBps']:.3f}", *ratios)
    title = (
        f"checkpoint of {format_bytes(first['bytes'])} of variables; ranks: {first['ranks']},"
        f" nodes: {first['nodes']}, rounds: {first['rounds']}"
    )
    console.print(title, table, "", _LEGEND, sep="\n", soft_wrap=True)
