"""Write and read sets of numbers as ranges: ``0-3, 8``."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ranges", "read_ranges"]


def ranges(numbers: Iterable[int]) -> str:
    """Return the numbers in order, neighbours joined: ``"0-3, 8"``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def read_ranges(text: str) -> frozenset[int]:
    """Return the numbers of a list as Linux writes them: ``"0-3,8"``."""
    numbers: set[int] = set()
    for part in filter(None, text.replace(" ", "").strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)
