"""Word the command that renders a script again, for the script's own heading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from mpistrat.sites.rendering.options import Options
from mpistrat.sites.rendering.quoting import shown_words

__all__ = ["render_command"]

_SKIPPED = ("strategy", "program", "directives")


def render_command(site: str, options: Options) -> str:
    """Return the command on one line; what cannot be printed is shown as a space."""
    words = ["mpistrat", "slurm", "render", "--site", site]
    words += ["--strategy", options.strategy.value, *_given(options)]
    for directive in options.directives:
        words += ["--directive", directive]
    return shown_words([*words, "--", *options.program] if options.program else words)


def _given(options: Options) -> Iterator[str]:
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in _SKIPPED or value == field.default:
            continue
        yield f"--{field.name.replace('_', '-')}"
        if value is not True:
            yield str(getattr(value, "value", value))
