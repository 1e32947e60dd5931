"""Cut rows into pieces of equal length, up to one row."""

from __future__ import annotations

__all__ = ["even_lengths", "piece_bounds"]


def even_lengths(count: int, pieces: int) -> list[int]:
    """Return the lengths of `pieces` pieces: the first ``count % pieces`` are one row longer."""
    least, longer = divmod(count, pieces)
    return [least + (index < longer) for index in range(pieces)]


def piece_bounds(count: int, pieces: int, index: int) -> tuple[int, int]:
    """Return the first row, and the end, of piece `index` of `count` rows.

    The pieces are contiguous and in order, of the lengths of :func:`even_lengths`; they may be
    empty.
    """
    least, longer = divmod(count, pieces)
    start = index * least + min(index, longer)
    return start, start + least + (index < longer)
