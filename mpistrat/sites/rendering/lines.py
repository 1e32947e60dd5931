"""Lines of a script, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpistrat.sites.schema import Site
from mpistrat.sites.sourced import Sourced

__all__ = ["Line", "by_default", "by_option", "by_site"]


@dataclass(frozen=True)
class Line:
    """A line, or a word of a command, and its origin.

    Attributes
    ----------
    text
        What the script has; quoted as its place needs it.
    comment
        What every script says about it: the site, source and date of a site's value, or a reason.
    explanation
        What ``--explain`` says about it.
    is_given
        Whether the user gave it on the command line.
    """

    text: str
    comment: str = ""
    explanation: str = ""
    is_given: bool = False


def by_site(site: Site, value: Sourced[Any], text: str | None = None) -> Line:
    """Return a line that a site's file states; `text` is the value itself unless given."""
    source = site.source_of(value)
    key = next(key for key, other in site.values() if other is value)
    why = f"; {value.reason}" if value.reason else ""
    return Line(
        text if text is not None else str(value.value),
        f"{site.name}: {value.source}, {source.date or 'undated'}",
        f"{site.name}, {key}: {source}{why}",
    )


def by_option(option: str, text: str) -> Line:
    """Return a line that an option of the command line asks for."""
    return Line(text, explanation=f"option {option}", is_given=True)


def by_default(text: str, why: str, comment: str = "") -> Line:
    """Return a line that is the same for all sites, unless one says otherwise."""
    return Line(text, comment, f"default: {why}")
