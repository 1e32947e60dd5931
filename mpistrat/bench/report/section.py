"""The parts of a report: sections with figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Figure", "Section", "Table"]


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes
    ----------
    caption
        What it shows.
    headers
        Of the columns.
    rows
        Their cells.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A drawn figure.

    Attributes
    ----------
    name
        Of its file, without folder and ending.
    title
        Above it.
    alt
        Says in a sentence or two what is seen, for readers who cannot see it.
    caption
        Below it: what the marks mean.
    drawing
        The figure of matplotlib.
    table
        Its numbers.
    """

    name: str
    title: str
    alt: str
    caption: str
    drawing: Any
    table: Table


@dataclass(frozen=True)
class Section:
    """A chapter of the page.

    Attributes
    ----------
    title
        Of the chapter.
    text
        Paragraphs before its figures.
    statements
        A list before its figures.
    figures, tables
        What it shows.
    left_out
        Titles of figures that were not drawn, since there would be too many.
    """

    title: str
    text: Sequence[str] = ()
    statements: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    left_out: Sequence[str] = field(default=())

    @property
    def is_empty(self) -> bool:
        """Whether it shows nothing."""
        return not (self.figures or self.tables or self.statements)
