"""Push rows to the parameter servers that keep the parts of a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import Scatter, ScatterBuffered
from mpistrat.ps.transport.push_buffers import OutgoingRows
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.tables.row_ranges import RowRanges
from mpistrat.tables.rows import check_result
from mpistrat.types import Array

__all__ = ["RowPush"]


class RowPush:
    """A change of some rows of a table.

    Parameters
    ----------
    client
        Of the member that makes it.
    what
        ``"add"``, ``"sub"``, ``"update"``, ``"mul"``, ``"div"``, ``"max"`` or ``"min"``.
    ranges
        The rows of each part.
    """

    def __init__(self, client: Client, what: str, ranges: RowRanges) -> None:
        self._client, self._what, self._ranges = client, what, ranges

    def tell(self, places: Sequence[tuple[int, int]], rows: Array, values: Array) -> None:
        """Send each part its rows; returns when they are sent.

        Parameters
        ----------
        places
            The ps of each part, and its key there.
        rows
            Indices of shape [n], each a row of the table.
        values
            Shape [n, ...], of the table's dtype.
        """
        if why_no_kernels() is not None:
            self._tell_routed(places, rows, values)
            return
        rows, values = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(values)
        wrong, counts = kernels().count_rows(rows, self._ranges.edges)
        check_result(wrong, "count_rows")
        # Every part gets its memory before any is filled, so that one pass over `rows` fills all.
        unsent: deque[tuple[int, int, OutgoingRows]] = deque()
        try:
            for (ps, key), count in zip(places, counts, strict=True):
                outgoing = self._client.outgoing_rows(ps, count, values.shape[1:], values.dtype)
                unsent.append((ps, key, outgoing))
            self._fill([outgoing for *_, outgoing in unsent], rows, values)
            while unsent:
                self._send(*unsent.popleft())
        finally:
            # An error of an earlier change ends the loop above, and buffers would stay taken.
            for *_, outgoing in unsent:
                outgoing.release()

    def _send(self, ps: int, key: int, outgoing: OutgoingRows) -> None:
        # `split_rows` has negated the values of a "sub" while it copied them.
        what = "add" if self._what == "sub" else self._what
        if outgoing.buffered is not None:
            self._client.tell(ps, ScatterBuffered(key, what, outgoing.buffered))
        elif outgoing.rows.size:
            self._client.tell(ps, Scatter(key, what, outgoing.rows, outgoing.values))

    def _fill(self, outgoing: Sequence[OutgoingRows], rows: Array, values: Array) -> None:
        native: Any = kernels()
        negated = native.dtype_of(values) if self._what == "sub" else -1
        columns = [one.rows for one in outgoing], [one.values for one in outgoing]
        result = native.split_rows(rows, values, self._ranges.edges, *columns, negated)
        check_result(result, "split_rows")

    def _tell_routed(self, places: Sequence[tuple[int, int]], rows: Array, values: Array) -> None:
        for (ps, key), route in zip(places, self._ranges.route(rows), strict=True):
            if route.rows.size:
                mine = route.take(values)
                self._client.tell(ps, Scatter(key, self._what, route.rows, mine))
