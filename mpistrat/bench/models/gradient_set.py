"""`GradientSet`: the shapes of a network's gradients, and a smaller set in proportion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

__all__ = ["GradientSet", "Shape", "Table"]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """An embedding table, whose gradient is rows and not an array of the table's shape.

    Attributes
    ----------
    rows
        Of the table.
    width
        float32 in a row.
    lookups
        Rows that one rank reads in a step; some of them may be the same.
    """

    rows: int
    width: int
    lookups: int

    @property
    def most_rows(self) -> int:
        """The most different rows that a rank can read in a step."""
        return min(self.rows, self.lookups)

    def scaled(self, fraction: float) -> Table:
        """Return a table with `fraction` of the rows and lookups, at least one of each."""
        return Table(_part(self.rows, fraction), self.width, _part(self.lookups, fraction))


@dataclass(frozen=True)
class GradientSet:
    """The float32 gradients of one training step.

    Attributes
    ----------
    name
        Of the network.
    shapes
        Of the dense gradients, in the order of the forward pass.
    tables
        Embedding tables, which the forward pass reads before the first of `shapes`.
    scale
        The fraction of the network's sizes that is left; 1 for the network as it is published.
    """

    name: str
    shapes: Sequence[Shape]
    tables: Sequence[Table] = ()
    scale: float = 1.0

    @property
    def parameters(self) -> int:
        """Elements of the dense gradients; tables do not count."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense gradients."""
        return 4 * self.parameters

    def scaled(self, fraction: float) -> GradientSet:
        """Return as many gradients, each with `fraction` of its largest dimension.

        The shapes fit together no longer, but their sizes keep their proportions. A dimension has
        at least one element.
        """
        if fraction == 1:
            return self
        shapes = [_scaled(shape, fraction) for shape in self.shapes]
        tables = [table.scaled(fraction) for table in self.tables]
        return replace(self, shapes=shapes, tables=tables, scale=self.scale * fraction)


def _scaled(shape: Shape, fraction: float) -> Shape:
    largest = shape.index(max(shape))
    return (*shape[:largest], _part(shape[largest], fraction), *shape[largest + 1 :])


def _part(count: int, fraction: float) -> int:
    return max(1, round(count * fraction))
