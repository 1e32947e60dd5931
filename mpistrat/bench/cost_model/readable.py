"""Write times and counts for readers."""

from __future__ import annotations

import math

__all__ = ["bytes_text", "count_text", "percent", "seconds_text"]


def seconds_text(seconds: float) -> str:
    """Return a time with three digits in a unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds * 1e9)} ns" if seconds > 0 else "0 s"


def bytes_text(nbytes: float) -> str:
    """Return a size in decimal units, rounded."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{_digits(nbytes / size)} {unit}"
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
