"""Values of a site file with the source that states each of them."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

__all__ = [
    "Directive",
    "Environment",
    "Key",
    "Line",
    "ModuleCommand",
    "Name",
    "QuotedText",
    "ShellWords",
    "Source",
    "Sourced",
    "Table",
    "Time",
    "Variable",
]

T = TypeVar("T")


def _is_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("expected one line of text, not empty, without control characters")
    return text


def _expands_variables_only(text: str) -> str:
    # Rendered scripts hold it in double quotes, where the shell acts on these.
    found = re.search(r'[`"\\]|\$\(', text)
    if found:
        raise ValueError(
            f"{found[0]!r} may not be in it: only $NAME and ${{NAME}} are expanded, no commands"
        )
    return text


def _has_plain_words(text: str) -> str:
    # Rendered scripts hold it without quotes.
    found = re.search(r"[;|&<>'*?#!~]", text)
    if found:
        raise ValueError(f"{found[0]!r} may not be in it: the shell would act on it")
    return text


def _matches(pattern: str, expected: str) -> AfterValidator:
    """Return the check that all of a text matches a pattern."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


def _date(value: object) -> object:
    if value == "undated":
        return None
    if not isinstance(value, dt.date):
        raise ValueError('expected a date without quotes, such as 2026-08-19, or "undated"')
    return value


Line = Annotated[str, AfterValidator(_is_line)]
"""One line of text, for people."""
Directive = Line
"""What follows ``#SBATCH`` or ``#PBS``, which no shell reads."""
QuotedText = Annotated[Line, AfterValidator(_expands_variables_only)]
"""Text for a place in double quotes: variables are expanded, commands are refused."""
ShellWords = Annotated[QuotedText, AfterValidator(_has_plain_words)]
"""Words of a command line, without quotes: variables are expanded."""
ModuleCommand = Annotated[
    ShellWords, _matches(r"(module|ml)( [^()]+)*", "a command `module ...` or `ml ...`")
]
"""A command that loads software, on a line of its own."""
Key = Annotated[str, _matches("[a-z0-9][a-z0-9-]*", "small letters, digits and hyphens")]
"""Name of a site, which is its file's name, or of a source."""
Name = Annotated[str, _matches("[A-Za-z_][A-Za-z0-9_]*", "the name of a variable")]
"""Name of an environment variable."""
Time = Annotated[str, _matches(r"(\d+-)?\d{1,3}:[0-5]\d:[0-5]\d", "HH:MM:SS or D-HH:MM:SS")]
"""Duration as Slurm and PBS Pro spell it: ``HH:MM:SS``, or Slurm's ``2-00:00:00``."""


class Table(BaseModel):
    """A table of a site file: keys are fixed, types are exact, nothing changes once it is read."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Source(Table):
    """A document or a measurement that states values.

    Attributes
    ----------
    title
        A repository with its commit, a page, or a measurement with its versions.
    date
        Of that commit or page; None where the document has none (``"undated"`` in the file).
    by
        Its author: ``centre``, who operates the machine; ``vendor``, who makes the software;
        ``community``, who uses the machine; ``measured``, by ``mpistrat doctor`` or by hand.
    """

    title: Line
    date: Annotated[dt.date | None, BeforeValidator(_date)]
    by: Literal["centre", "vendor", "community", "measured"]

    def __str__(self) -> str:
        """Return the source as a comment of a job script has it."""
        by = "" if self.by in ("centre", "vendor") else f", {self.by}"
        return f"{self.title} ({self.date or 'undated'}{by})"


class Sourced(Table, Generic[T]):
    """A value, the key of its source in ``[sources]``, and why the site needs it."""

    value: T
    source: Key
    reason: Line | None = None


class Variable(Sourced[QuotedText]):
    """Value of an environment variable; jobs of fewer than `min_nodes` nodes do without it."""

    min_nodes: int | None = None


Environment = Annotated[dict[Name, Variable], Field(default_factory=dict)]
"""Variables by name; none where the table is left out."""
