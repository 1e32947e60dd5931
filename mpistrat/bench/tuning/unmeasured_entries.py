"""Read the entries of a tuning table that ``bench tune`` leaves as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mpistrat import Communicator
from mpistrat.collectives.backends.shared_memory import tuning_table
from mpistrat.collectives.backends.shared_memory.tuning import Sizes
from mpistrat.errors import UsageError

__all__ = ["Search", "kept_of", "on_rank_0"]

_Made = TypeVar("_Made")


class Search(Protocol):
    """A search whose results are an entry of the table.

    Attributes
    ----------
    key
        The entry's name.
    names
        The kinds of call that it measures.
    """

    key: str
    names: tuple[str, ...]

    def parsed(self, entry: Any) -> Mapping[str, Sizes]:
        """Return the tunings of a table's entry; raise `ValueError` if it is none."""
        ...

    def best(self, name: str) -> Sizes:
        """Measure, and return the fastest tuning for one kind of call. **Collective.**"""
        ...


def kept_of(file: Path, search: Search, names: Sequence[str]) -> dict[str, Sizes]:
    """Return the entry's tunings in `file` for kinds of call that are not in `names`. **Local.**

    Tunings that are going to be measured again are not read, so they may be wrong.

    Raises
    ------
    UsageError
        The file cannot be read or written or is no table, or what has to be kept is wrong.
    """
    entry = _read(file).get(search.key, {})
    if isinstance(entry, dict):
        entry = {name: part for name, part in entry.items() if name not in names}
    try:
        return dict(search.parsed(entry))
    except ValueError as error:
        if set(names) >= set(search.names):
            return {}
        raise UsageError(
            f"bench tune: {file} cannot keep what it has for other kinds of call under"
            f" {search.key!r}: {error}; measure all of them, without --calls, or correct it"
        ) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        table = tuning_table.read(file)
        tuning_table.try_to_write(file)
    except ValueError as error:
        raise UsageError(
            f"bench tune: {file} is no table of tunings: {error}; remove it, or name another"
            " with --out"
        ) from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a link to itself
        raise UsageError(
            f"bench tune: {file} cannot be read and written: {error}; name another with --out"
        ) from error
    return table


def on_rank_0(communicator: Communicator, make: Callable[[], _Made]) -> _Made | None:
    """Call `make` on rank 0 and return its result there, None on other ranks. **Collective.**

    Raises
    ------
    UsageError
        On all ranks: what `make` raised.
    """
    made, said = None, ""
    if communicator.rank == 0:
        try:
            made = make()
        except UsageError as error:
            said = str(error)
    told = communicator.bcast_object(said)
    if told:
        raise UsageError(told)
    return made
