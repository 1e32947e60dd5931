"""Parse sizes in bytes from a command line: ``8,4KiB`` and ``8:64MiB``."""

from __future__ import annotations

import re

from mpistrat.errors import UsageError

__all__ = ["format_bytes", "parse_sizes"]

_UNITS: dict[str, int] = {
    "": 1,
    "B": 1,
    **{f"{letter}iB": 1 << (10 * power) for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}B": 10 ** (3 * power) for power, letter in enumerate("kMGT", 1)},
}
_SIZE = re.compile(r"(\d+) ?([A-Za-z]*)")
_FACTOR = 4


def parse_sizes(text: str) -> list[int]:
    """Return the sizes that a comma list names, in bytes, in its order.

    Parameters
    ----------
    text
        Sizes (``8``, ``4KiB``, ``1MB``) and ranges ``FIRST:LAST``, which go up in steps of 4 and
        always end with LAST; ``FIRST:LAST:FACTOR`` for other steps.

    Raises
    ------
    UsageError
        A part is neither.
    """
    sizes = [size for part in text.split(",") for size in _part(part.strip())]
    return list(dict.fromkeys(sizes))


def format_bytes(nbytes: int) -> str:
    """Return a size as :func:`parse_sizes` takes it, in the largest unit that is exact."""
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes and nbytes % _UNITS[unit] == 0:
            return f"{nbytes // _UNITS[unit]} {unit}"
    return f"{nbytes} B"


def _part(part: str) -> list[int]:
    first, *rest = part.split(":")
    if not rest:
        return [_size(first)]
    if len(rest) == 1:
        return _range(_size(first), _size(rest[0]), _FACTOR)
    if len(rest) == 2 and rest[1].isdigit():
        return _range(_size(first), _size(rest[0]), int(rest[1]))
    raise UsageError(f"size {part!r}: expected FIRST:LAST or FIRST:LAST:FACTOR, as in 8:64MiB:2")


def _range(first: int, last: int, factor: int) -> list[int]:
    if not 0 < first <= last or factor < 2:
        raise UsageError(
            f"sizes from {first} to {last} in steps of ×{factor}: expected 0 < FIRST <= LAST and"
            " a FACTOR of at least 2"
        )
    sizes = []
    while first < last:
        sizes.append(first)
        first *= factor
    return [*sizes, last]


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        units = ", ".join(unit for unit in _UNITS if unit)
        raise UsageError(f"size {text!r}: expected a number of bytes, or one with {units}")
    return int(match[1]) * _UNITS[match[2]]
