"""Write times and counts for readers."""

from __future__ import annotations

import math

__all__ = ["bytes_text", "count_text", "percent", "seconds_text"]


def seconds_text(seconds: float) -> str:
    """Return a time with three digits in a unit that fits: hours from 2 on, days likewise."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0)):
        if seconds >= 2 * size:
            return f"{_digits(seconds / size)} {unit}"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds * 1e9)} ns" if seconds > 0 else "0 s"


def bytes_text(nbytes: float) -> str:
    """Return a size in binary units, with three digits: ``8 MiB``."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << power:
            return f"{_digits(nbytes / (1 << power))} {unit}"
    return f"{nbytes:.0f} B"


def count_text(count: float) -> str:
    """Return a number of ranks in two digits, with commas."""
    if count < 100:
        return f"{count:.0f}"
    unit = 10 ** (int(math.log10(count)) - 1)
    return f"{round(count / unit) * unit:,}"


def percent(share: float) -> str:
    """Return a share in percent: whole above 10, with a digit below."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if abs(share) >= 0.0995 else f"{share:.1%}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
