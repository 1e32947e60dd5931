"""Load the templates of job scripts, with the filters that they use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import jinja2

from mpistrat.errors import UsageError
from mpistrat.sites.data_folder import slurm_folder
from mpistrat.sites.lookup import user_folder
from mpistrat.sites.rendering.lines import Line
from mpistrat.sites.rendering.quoting import printable

__all__ = ["filled"]

_COLUMN = 48  # where comments begin


def filled(name: str, context: dict[str, object], *, explain: bool, above: bool) -> str:
    """Return a template's text with its values.

    Parameters
    ----------
    name
        Of the template's file; one in the folder ``templates`` beside the user's own sites goes
        before the one that comes with mpistrat.
    explain
        Whether each line is preceded by its origin, in full.
    above
        Whether a comment goes above its line, for schedulers that do not read one behind it.

    Raises
    ------
    UsageError
        The user's own template has a mistake.
    """
    folders = (user_folder().parent / "templates", slurm_folder() / "templates")
    environment = _environment(folders, explain, above)
    try:
        return environment.get_template(name).render(context)
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"template {error.filename}, line {error.lineno}: {error}") from error
    except (jinja2.TemplateError, TypeError) as error:
        raise UsageError(f"template {name} in {folders[0]} or {folders[1]}: {error}") from error


@functools.lru_cache(maxsize=8)  # compiling the templates takes longer than filling them
def _environment(folders: tuple[Path, ...], explain: bool, above: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # it is no HTML; values are quoted for the shell one by one
    )
    environment.filters["noted"] = _noting(explain, above)
    return environment


def _noting(explain: bool, above: bool) -> Callable[..., str]:
    def noted(line: Line, before: str = "", after: str = "", indent: int = 0) -> str:
        """Return a line between `before` and `after`, with the comment that names its origin."""
        margin = " " * indent
        text = f"{margin}{before}{line.text}{after}"
        note = printable(line.explanation if explain else line.comment)
        if not note:
            return text
        if explain or above:
            return f"{margin}# {note}\n{text}"
        return f"{text:<{_COLUMN}}  # {note}"

    return noted
