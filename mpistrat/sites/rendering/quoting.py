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
    "printable",
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
    r"""Return words as bash reads them, each as it is: nothing in them is expanded or run.

    Line breaks and tabs stay; other control characters, and bytes that are not UTF-8, are spelled
    as bash's ``$'...'`` does it: editors and sbatch may change or refuse them.

    Examples
    --------
    >>> print(shell_words(["a b", "one\rtwo", "\udcff"]))
    'a b' $'one\x0dtwo' $'\xff'
    """
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if word.replace("\n", "").replace("\t", "").isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    """Return a character for bash's ``$'...'``: as it is, or its bytes by their numbers."""
    if char in "'\\":
        return f"\\{char}"
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def shown_words(words: Sequence[str]) -> str:
    """Return words for a comment, on one line whatever they contain."""
    return printable(shlex.join(words))


def printable(text: str) -> str:
    """Return text with a space for each character that ends a line or cannot be printed."""
    return "".join(char if char.isprintable() else " " for char in text)
