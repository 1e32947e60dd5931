"""Read a site file; its first mistake becomes one line that says how to mend it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpistrat.errors import UsageError
from mpistrat.sites.mistakes import described
from mpistrat.sites.schema import Site

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["read"]


def read(file: Path) -> Site:
    """Return the site that a file describes. **Local.**

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or breaks a rule of the schema; one line names the
        file, the key, what was found and what was expected.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read site file {file}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"site file {file} is not TOML: {error}; mend that line") from error
    try:
        site = Site.model_validate(_with_tuples(tables))
    except ValidationError as error:
        raise UsageError(f"site file {file}: {described(error)}") from None
    if site.name != file.stem:
        raise UsageError(
            f"site file {file}: name = {site.name!r}, expected {file.stem!r}, as the file is named"
        )
    return site


def _with_tuples(value: Any) -> Any:
    """Return TOML's value with tuples for lists: the model's values never change."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
