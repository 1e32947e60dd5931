"""Hold a job's directives against what its site forbids and requires."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpistrat.errors import UsageError
from mpistrat.sites.flags import option_name
from mpistrat.sites.rendering.lines import Line
from mpistrat.sites.rendering.scheduler.user_directives import own_option
from mpistrat.sites.schema import Site
from mpistrat.sites.sourced import Sourced

__all__ = ["allowed", "check_required", "merged"]


def merged(site: Site, *groups: Iterable[Line]) -> list[Line]:
    """Return directives with one for each option: that of the last group which has it."""
    found: dict[str, Line] = {}
    for group in groups:
        # Within a group an option may come several times, as PBS Pro's -l does by its names.
        added = {_key(site, line): line for line in group}
        found.update(added)
    return list(found.values())


def allowed(site: Site, lines: Iterable[Line]) -> list[Line]:
    """Return the lines without those that the site forbids and nobody asked for.

    Raises
    ------
    UsageError
        The user asked for one that is forbidden.
    """
    kept = []
    for line in lines:
        rule = site.forbids(line.text)
        if rule is None:
            kept.append(line)
        elif line.is_given:
            raise UsageError(
                f"{line.text}: {site.name} refuses jobs with {rule.value}"
                f" ({_because(site, rule)}); leave it out"
            )
    return kept


def check_required(site: Site, lines: Sequence[Line]) -> None:
    """Refuse a job that lacks what the site requires; one error names all that is missing."""
    present = {option_name(line.text, site.scheduler) for line in lines}
    missing = [
        rule
        for rule in site.batch.required
        if option_name(rule.value, site.scheduler) not in present
    ]
    if missing:
        wanted = "; ".join(f"{_how(site, rule)} ({_because(site, rule)})" for rule in missing)
        raise UsageError(f"{site.name} requires options that are missing: add {wanted}")


def _key(site: Site, line: Line) -> str:
    name = option_name(line.text, site.scheduler)
    return "--requeue" if name == "--no-requeue" else name


def _how(site: Site, rule: Sourced[str]) -> str:
    name = option_name(rule.value, site.scheduler)
    joint = "=" if name.startswith(("--", "-l ", "-W ")) else " "
    return own_option(name, site.scheduler) or f"--directive '{name}{joint}VALUE'"


def _because(site: Site, rule: Sourced[str]) -> str:
    reason = f"{rule.reason}; " if rule.reason else ""
    return f"{reason}{site.source_of(rule)}"
