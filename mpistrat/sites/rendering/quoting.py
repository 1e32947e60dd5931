"""Quote what users give, for the scheduler's directives and for the shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mpistrat.errors import UsageError

__all__ = [
    "checked_line",
    "directive_value",
    "expanded_words",
    "pbs_value",
    "shell_words",
    "shown_words",
]

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def directive_value(text: str) -> str:
    r"""Return text as a value in a line of ``#SBATCH``, whose quotes and backslashes sbatch reads.

    Examples
    --------
    >>> directive_value("gpu"), directive_value('a "b" # c')
    ('gpu', '"a \\"b\\" # c"')
    """
    if _PLAIN.fullmatch(text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def pbs_value(option: str, text: str) -> str:
    """Return text as a value in a line of ``#PBS``, which has no quotes.

    Raises
    ------
    UsageError
        PBS Pro would read it otherwise.
    """
    if not _PLAIN.fullmatch(text):
        raise UsageError(
            f"{option} {text!r}: PBS Pro takes letters, digits and _@%+=:,./- here; name it anew"
        )
    return text


def checked_line(option: str, text: str) -> str:
    """Return an option's value that goes on one line of a script.

    Raises
    ------
    UsageError
        It is empty, or has a line break or another control character.
    """
    if not text.strip() or not text.isprintable():
        raise UsageError(
            f"{option} {text!r}: expected one line of text, without control characters"
        )
    return text


def expanded_words(text: str) -> str:
    """Return words of a site's file for the shell, which expands variables within each.

    Examples
    --------
    >>> expanded_words("--bind list:0,1 $HOME")
    '--bind "list:0,1" "$HOME"'
    """
    words = text.split()
    return " ".join(
        word if re.fullmatch(r"[\w@%+=:./-]+", word) else f'"{word}"' for word in words
    )


def shell_words(words: Sequence[str]) -> str:
    """Return words as the shell reads them, each as it is: nothing in them is expanded or run."""
    return shlex.join(words)


def shown_words(words: Sequence[str]) -> str:
    """Return words for a comment, on one line whatever they contain."""
    return re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", " ", shlex.join(words))
