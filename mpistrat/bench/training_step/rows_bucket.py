"""`RowsBucket`: rows of embedding tables that are gathered, with known values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpistrat.bench.models.gradient_set import Table
from mpistrat.bench.training_step.pending import Pending
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.bench.training_step.carrier import Carrier

__all__ = ["RowsBucket"]

_PERIOD = 7


@dataclass(frozen=True)
class RowsBucket:
    """Rows of embedding tables, different ones and differently many on each rank.

    Rows are drawn with equal chance; each is there once, as `IndexedSlices.summed` leaves it, and
    as MLPerf's --mlperf-coalesce-sparse-grads does.

    Attributes
    ----------
    tables
        Whose rows these are.
    size
        How many ranks there are.
    arrays
        Values and indices of this rank: of the first table, of the second, and so on.
    """

    tables: Sequence[Table]
    size: int
    arrays: list[Array]

    @classmethod
    def drawn(cls, tables: Sequence[Table], rank: int, size: int) -> RowsBucket:
        """Draw a rank's rows. **Local.**"""
        pairs = [_rows(table, number, rank) for number, table in enumerate(tables)]
        return cls(tables, size, [array for pair in pairs for array in pair])

    @property
    def sizes(self) -> list[int]:
        """See `Bucket`."""
        return [table.most_rows * table.width for table in self.tables]

    def expected(self) -> list[Array]:
        """Return `arrays` with the rows of all ranks, in the order of the ranks."""
        numbered = enumerate(self.tables)
        found = [[_rows(table, number, r) for r in range(self.size)] for number, table in numbered]
        return [np.concatenate(parts) for pairs in found for parts in zip(*pairs, strict=True)]

    def start(self, carrier: Carrier) -> Pending:
        """See `Bucket`."""
        return carrier.gather(self)

    def is_right(self, answer: Sequence[Array]) -> bool:
        """See `Bucket`."""
        wanted = self.expected()
        pairs = zip(answer, wanted, strict=False)
        is_right = len(answer) == len(wanted) and all(np.array_equal(*pair) for pair in pairs)
        for array in answer:
            array.fill(-1)  # no index, and no value
        return is_right


def _rows(table: Table, number: int, rank: int) -> tuple[Array, Array]:
    """Return values and ascending indices of a rank's rows; all elements of a row are alike."""
    generator = np.random.default_rng([number, rank])
    indices = np.unique(generator.integers(0, table.rows, table.lookups))
    values = np.empty((indices.size, table.width), np.float32)
    values[...] = (1 + (rank + indices) % _PERIOD)[:, None]
    return values, indices
