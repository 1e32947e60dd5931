"""Expand Slurm's lists of hosts: ``n[1-3],m07`` names the hosts n1, n2, n3 and m07.

Slurm does it itself by ``scontrol show hostnames``; this serves where that cannot be run. The
libraries on PyPI that do it are under GPL or LGPL.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from mpistrat.errors import UsageError

__all__ = ["MOST_HOSTS", "expand"]

MOST_HOSTS = 1 << 20
"""A longer list is a mistake: it would fill the memory."""

_PART = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> list[str]:
    """Return the hosts of a list, in its order.

    Parameters
    ----------
    text
        Names with ranges in brackets, which may come several in a name: ``r[1-2]n[01-10],gpu7``.
        Where the first number of a range begins with zeros, all have its width.

    Raises
    ------
    UsageError
        It is no such list, or names more than `MOST_HOSTS`.
    """
    parts = _PART.findall(text)
    # What the pattern passes over, such as a bracket without its other half, or an empty name.
    if not parts or ",".join(parts) != text.strip():
        raise _bad(text, "cannot be read")
    hosts: list[str] = []
    for part in parts:
        found = list(_PIECE.finditer(part))
        pieces = [_choices(piece, text) for piece in found]
        if len(hosts) + math.prod(map(len, pieces)) > MOST_HOSTS:
            raise _bad(text, f"names more than {MOST_HOSTS} hosts")
        last = max((at for at, piece in enumerate(found) if piece[1] is not None), default=0)
        hosts.extend(_product(pieces, last))
    return hosts


def _choices(piece: re.Match[str], text: str) -> list[str]:
    """Return what may stand at one place of a name."""
    ranges, literal = piece.groups()
    if ranges is None:
        return [literal]
    return [name for one in ranges.split(",") for name in _numbers(one, text)]


def _numbers(one: str, text: str) -> list[str]:
    found = _RANGE.fullmatch(one)
    if found is None:
        raise _bad(text, f"has the range {one!r}")
    first, last = found[1], found[2] or found[1]
    count = int(last) - int(first) + 1
    if not 0 < count <= MOST_HOSTS:
        raise _bad(text, f"has the range {one!r}")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _product(pieces: list[list[str]], last: int) -> Iterator[str]:
    """Return the names in Slurm's order: the last range varies first, the others from the left."""
    for first in itertools.product(*reversed(pieces[:last])):
        for rest in itertools.product(*pieces[last:]):
            yield "".join((*reversed(first), *rest))


def _bad(text: str, what: str) -> UsageError:
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return UsageError(
        f"list of hosts {shown!r} {what}; expected Slurm's form, such as 'n[1-3],m07'"
        " (scontrol show hostnames LIST expands it)"
    )
