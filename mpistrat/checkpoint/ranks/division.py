"""Divide the writing of values that all ranks hold evenly by bytes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CUT_BYTES", "shares"]

CUT_BYTES = 1 << 20
"""Up to here a tensor is written by one rank; a longer one may be cut between rows."""


def shares(tensors: Sequence[tuple[int, int]], size: int) -> list[list[tuple[int, int, int]]]:
    """Return for each of `size` ranks the rows it writes: (index of the tensor, start, stop).

    The tensors are laid end to end, and cut into as many equal pieces as there are ranks.

    Parameters
    ----------
    tensors
        Bytes and rows of each.
    size
        Number of ranks.
    """
    # Whole numbers throughout: all ranks come to the same cuts, so each row is written once.
    total = sum(nbytes for nbytes, _ in tensors)
    result: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]
    begin = 0
    for index, (nbytes, rows) in enumerate(tensors):
        if nbytes <= CUT_BYTES:
            # It is not cut: the rank in whose piece its middle lies writes all of it.
            middle = (2 * begin + nbytes) * size // (2 * total) if total else 0
            result[min(middle, size - 1)].append((index, 0, rows))
        else:
            cuts = [_row(total * rank // size - begin, nbytes, rows) for rank in range(size + 1)]
            for rank in range(size):
                if cuts[rank] < cuts[rank + 1]:
                    result[rank].append((index, cuts[rank], cuts[rank + 1]))
        begin += nbytes
    return result


def _row(offset: int, nbytes: int, rows: int) -> int:
    """Return the row of a tensor in which a byte offset lies."""
    return min(max(offset, 0) * rows // nbytes, rows)
