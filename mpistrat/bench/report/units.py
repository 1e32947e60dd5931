"""Write times, sizes and other text for people: three digits and a unit that fits."""

from __future__ import annotations

from collections.abc import Iterable

from mpistrat.bench.report.analysis.intervals import Interval
from mpistrat.bench.sizes import format_bytes

__all__ = [
    "TIME_UNITS",
    "bars_of",
    "counted",
    "factor",
    "format_batch",
    "format_interval",
    "format_layout",
    "format_rate",
    "format_ratio",
    "format_size",
    "format_time",
    "number",
    "plain",
    "sentence",
    "unit_of",
]

_LONG = ((86400e6, "days"), (3600e6, "h"), (60e6, "min"))
TIME_UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))


def format_time(time_us: float) -> str:
    """Return a time of microseconds with three digits: ``1.23 ms``; 0 without a unit.

    From 2 minutes, 2 hours and 2 days on it is in these units.
    """
    if time_us == 0:
        return "0"
    for scale, unit in _LONG:
        if abs(time_us) >= 2 * scale * 0.9995:
            return f"{_digits(time_us / scale)} {unit}"
    for scale, unit in TIME_UNITS:
        if abs(time_us) >= scale * 0.9995:
            return f"{_digits(time_us / scale)} {unit}"
    return f"{_digits(time_us / 1e-3)} ns"


def format_interval(interval: Interval) -> str:
    """Return a time's interval, and what it is: ``1.20 ms to 1.31 ms (95 %)``."""
    return f"{format_time(interval.low)} to {format_time(interval.high)} ({interval.kind})"


def format_rate(rate: Interval | None) -> str:
    """Return a rate with the ends of its interval: ``4.4 (4.1 to 4.6)``."""
    if rate is None:
        return ""
    return f"{number(rate.median)} ({number(rate.low)} to {number(rate.high)})"


def format_ratio(name: str, ratio: Interval) -> str:
    """Return a ratio over a peer, of several runs with their range."""
    span = f" ({factor(ratio.low)}× to {factor(ratio.high)}× by run)" if ratio.runs > 1 else ""
    return f"{plain(name)} {factor(ratio.median)}×{span}"


def number(value: float) -> str:
    """Return a number with three digits, and without an exponent where it is large."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def factor(value: float) -> str:
    """Return a ratio with two decimals, and of small ones with two digits."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def bars_of(intervals: Iterable[Interval]) -> str:
    """Return what bars in a figure are, and call them 95 % intervals only if all of them are."""
    found = list(intervals)
    kinds = {one.kind for one in found}
    if kinds == {"range"}:
        runs = max(one.runs for one in found)
        of_runs = f" of all {runs} runs" if runs > 1 else ""
        return f"the range of the values{of_runs}, which is not a 95 % interval"
    if len(kinds) > 1:
        return "intervals of the median, whose kind is in the table"
    (kind,) = kinds
    return (
        f"intervals of the median, {kind}" if "each" in kind else f"{kind} intervals of the median"
    )


def format_size(nbytes: int) -> str:
    """Return a size, in a binary unit that is exact or nearly so: ``16 MiB``."""
    for power in (30, 20, 10):
        unit = 1 << power
        whole = round(nbytes / unit)
        # Sizes are rounded down to equal pieces, of 3 ranks for example.
        if whole and abs(nbytes - whole * unit) <= unit * 1e-3:
            return format_bytes(whole * unit)
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 1 << power:
            return f"{_digits(nbytes / (1 << power))} {name}"
    return f"{nbytes} B"


def format_layout(ranks: int, nodes: int) -> str:
    """Return how many ranks are on how many machines."""
    return f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}"


def plain(text: object, most: int = 60) -> str:
    """Return text of one line that any font and any XML can hold, cut to `most` characters."""
    line = "".join(one if one.isprintable() else " " for one in str(text))
    line = " ".join(line.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def unit_of(times_us: Iterable[float]) -> tuple[float, str]:
    """Return the unit for the largest of some times: its microseconds, and its name."""
    most = max(times_us, default=1.0)
    return next((one for one in TIME_UNITS if most >= one[0]), TIME_UNITS[-1])


def sentence(text: str) -> str:
    """Return text of one line with a capital at its beginning."""
    line = plain(text, 140)
    return line[:1].upper() + line[1:]


def counted(count: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def format_batch(examples: object) -> str:
    """Return how many examples: whole, or with the mean's decimals."""
    return f"{examples:.6g}" if isinstance(examples, (int, float)) else plain(examples)


def _digits(value: float) -> str:
    size = abs(value)
    places = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:.{places}f}"
