"""Divide the rows of an array into consecutive ranges, and find the range of a row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from mpistrat.tables.even_cut import even_lengths
from mpistrat.tables.rows import check_result, put_rows
from mpistrat.types import Array

__all__ = ["Route", "RowRanges", "joined"]


class RowRanges:
    """Consecutive ranges of rows, one for each part of an array.

    Parameters
    ----------
    lengths
        Rows in each range.

    Attributes
    ----------
    starts
        The first row of each range.
    edges
        The same, and after them the number of all rows; int64.

    Examples
    --------
    >>> list(RowRanges.divide(13, 5))  # TensorFlow's "div"
    [(0, 3), (3, 6), (6, 9), (9, 11), (11, 13)]
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._stops = list(accumulate(lengths))
        self.starts = [0, *self._stops[:-1]]
        self.edges = np.array([0, *self._stops], np.int64)
        self._bounds = np.array(self.starts[1:], np.int64)
        self._is_divided = list(lengths) == even_lengths(self.count, len(lengths))

    @classmethod
    def divide(cls, count: int, parts: int) -> RowRanges:
        """Divide `count` rows into `parts` ranges whose lengths differ by one row at most."""
        return cls(even_lengths(count, parts))

    @property
    def count(self) -> int:
        """Number of rows of all ranges."""
        return self._stops[-1]

    def __len__(self) -> int:
        return len(self._stops)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.starts, self._stops, strict=True))

    def split(self, array: Array) -> list[Array]:
        """Return views of the ranges' rows of `array`."""
        return [array[start:stop] for start, stop in self]

    def find(self, row: int) -> int:
        """Return the index of the range that contains `row`, which must be in one."""
        return bisect_right(self.starts, row) - 1

    def find_all(self, rows: Array) -> Array:
        """Return the index of the range of each of `rows`, of shape [n]."""
        each, more = divmod(self.count, len(self))
        if self._is_divided and each:  # many times faster than to search
            # The first `more` ranges have one row more: the larger of the two quotients is right.
            parts: Array = np.maximum(rows // (each + 1), (rows - more) // each)
            return parts
        return np.searchsorted(self._bounds, rows, side="right")

    def route(self, rows: Array) -> list[Route]:
        """Return, for each range, which of `rows` it contains.

        Parameters
        ----------
        rows
            Whole numbers of shape [n], each a row of one range, in any order and any number of
            times.
        """
        if len(self) == 1:
            return [Route(None, rows)]
        rows = rows.astype(np.int64, copy=False)  # unsigned ones would wrap
        # A stable sort of 16 bits is a radix sort: it costs little more than a copy.
        narrow = np.uint16 if len(self) <= 1 << 16 else np.int64
        parts = self.find_all(rows).astype(narrow)
        order = np.argsort(parts, kind="stable")
        cuts = np.searchsorted(parts[order], np.arange(1, len(self), dtype=narrow))
        return [
            Route(where, rows[where] - start)
            for where, start in zip(np.split(order, cuts), self.starts, strict=True)
        ]


class Route:
    """The requested rows that one range contains.

    Attributes
    ----------
    where
        Their positions among all, of shape [m], ascending; None for all of them.
    rows
        The rows, counted from the range's first one, of shape [m].
    """

    __slots__ = ("rows", "where")

    def __init__(self, where: Array | None, rows: Array) -> None:
        self.where, self.rows = where, rows

    def take(self, values: Array) -> Array:
        """Return the parts of `values`, of shape [n, ...], for these rows."""
        return values if self.where is None else values.take(self.where, axis=0)

    def put(self, values: Array, out: Array) -> None:
        """Put `values`, of shape [m, ...], where these rows are in `out`, of shape [n, ...].

        `out` has the same dtype, and is in C order.
        """
        if self.where is None:
            out[...] = values
        else:
            check_result(put_rows(out, self.where, np.ascontiguousarray(values)), "put")


def joined(routes: Sequence[Route], pieces: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Merge the ranges' values into the order in which the rows were requested.

    Parameters
    ----------
    routes
        Of `RowRanges.route`.
    pieces
        For each range, values of shape [m, ...] that nobody else keeps.
    shape
        Of the result, [n, ...].
    """
    if len(pieces) == 1:
        return pieces[0]
    result = np.empty(shape, np.result_type(*pieces))
    for route, piece in zip(routes, pieces, strict=True):
        route.put(piece, result)
    return result
