"""Check the options of a case before it runs, and write them as words of a command line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import typer

from mpistrat.errors import UsageError

__all__ = ["as_texts", "as_words", "check_options"]

Value = bool | int | float | str


def check_options(case: str, options: Mapping[str, Value], where: str = "") -> None:
    """Raise `UsageError` unless a case has these options, and takes their values.

    Its message begins with `where`.
    """
    flags = _flags(case, where)
    for name, value in options.items():
        _check_option(f"{where}case {case}: option {name!r}", name, value, flags)
    _check_values(case, as_words(as_texts(case, options)), where)


def _check_option(what: str, name: str, value: Value, flags: Mapping[str, bool]) -> None:
    if f"--{name}" not in flags:
        close = get_close_matches(f"--{name}", flags, n=1)
        meant = f"; did you mean {close[0][2:]!r}?" if close else "."
        known = ", ".join(sorted(flag[2:] for flag in flags if not flag.startswith("--no-")))
        raise UsageError(f"{what} is not known{meant} Known: {known}")
    if flags[f"--{name}"] is not isinstance(value, bool):
        wanted = "true or false" if flags[f"--{name}"] else "a number or a text"
        raise UsageError(f"{what}: got {value!r}, expected {wanted}")
    if isinstance(value, str) and (not value or "\0" in value):
        raise UsageError(f"{what}: got {value!r}, expected a text of one letter or more")


def _check_values(case: str, words: list[str], where: str) -> None:
    """Let the case's own command line read the words, without running it."""
    command = typer.main.get_command(_application(case, where))
    try:
        command.make_context(case, list(words))
    except Exception as error:
        # Its base class is one of a package that typer brings or has within.
        if not hasattr(error, "format_message"):
            raise
        raise UsageError(f"{where}case {case}: {error.format_message()}") from error


def as_texts(case: str, options: Mapping[str, Value]) -> dict[str, str]:
    """Return options as a result file holds them: of a switch that is on the value is ``""``."""
    flags, texts = _flags(case), {}
    for name, value in options.items():
        if not isinstance(value, bool):
            texts[name] = str(value)
        elif value:
            texts[name] = ""
        elif f"--no-{name}" in flags:  # else it is off already
            texts[f"no-{name}"] = ""
    return texts


def as_words(texts: Mapping[str, str]) -> list[str]:
    """Return options as words of a command line."""
    return [f"--{name}={text}" if text else f"--{name}" for name, text in texts.items()]


def _flags(case: str, where: str = "") -> dict[str, bool]:
    """Return the options of a case with their dashes, and whether each is a switch."""
    parameters: list[Any] = typer.main.get_command(_application(case, where)).params
    return {
        flag: bool(getattr(one, "is_flag", False))
        for one in parameters
        for flag in (*one.opts, *one.secondary_opts)
        if flag not in {"--help", "--json"}
    }


def _application(case: str, where: str) -> typer.Typer:
    from mpistrat.bench.__main__ import CASES  # which imports the tool that asks

    if case not in CASES:
        close = get_close_matches(case, CASES, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else "."
        raise UsageError(f"{where}case {case!r} is not known{meant} Known: {', '.join(CASES)}")
    app = typer.Typer(add_completion=False)
    app.command()(importlib.import_module(CASES[case]).command)
    return app
