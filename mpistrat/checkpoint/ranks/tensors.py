"""The tensors of a checkpoint that a program restores: those of all ranks are read together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mpistrat.checkpoint.files.data_files import DataFiles
from mpistrat.checkpoint.objects.graph import Graph
from mpistrat.checkpoint.objects.leaves import STATE
from mpistrat.checkpoint.objects.matching import Matches, check_ready, match
from mpistrat.checkpoint.objects.saveable import Part
from mpistrat.checkpoint.ranks.saving_ranks import SavingRanks
from mpistrat.checkpoint.ranks.shared_reading import SharedReading, digest_of
from mpistrat.collectives import Communicator
from mpistrat.types import Array

__all__ = ["Tensors"]


class Tensors:
    """The tensors of a checkpoint.

    Parameters
    ----------
    path
        Of the checkpoint.
    index
        Its index, the same on all ranks.
    """

    def __init__(self, path: Path, index: Mapping[str, Any]) -> None:
        self._index, self._files = index, DataFiles(path, index)
        self._shared: SharedReading | None = None
        self._writes: defaultdict[str, list[Callable[[Array], Any]]] = defaultdict(list)

    def match(self, what: str, graph: Graph, ranks: SavingRanks) -> Matches:
        """Match this rank's objects, and read what all ranks restore whole. **Collective.**

        Parameters
        ----------
        what
            Names the restore in errors.
        """
        found: list[Matches] = []

        def match_here() -> str:
            self._files.check(ranks.rank, ranks.size)
            found.append(match(graph.check(), self._index))
            check_ready(graph.unready, self._index)
            return digest_of(_whole(found[0]))

        digests = ranks.take(what, match_here)
        # Where ranks restore different things, each reads its own.
        if ranks.communicator is not None and len(set(digests)) == 1:
            self._read_together(what, _whole(found[0]), ranks)
        return found[0]

    def _read_together(self, what: str, keys: list[str], ranks: SavingRanks) -> None:
        shared = SharedReading(self._index, keys, ranks.rank, ranks.size)
        ranks.take(what, lambda: shared.read(self._files), shared.longest_s)
        self._shared = shared

    def restore_later(self, part: Part, key: str) -> bool:
        """Let `gather` write a part, if it is one that copies what it is given."""
        is_one = part.copies and self._shared_with(part, key) is not None
        if is_one:
            self._writes[key].append(part.write)
        return is_one

    def load(self, key: str, part: Part | None = None) -> Array:
        """Return a tensor, or a part of it, in an array of its own, which `gather` may fill."""
        shared = self._shared_with(part, key)
        if shared is None:
            return self._files.load(key, None if part is None else part.rows)
        return shared.target(key)

    def _shared_with(self, part: Part | None, key: str) -> SharedReading | None:
        """Return what reads a part together with the other ranks, if anything does."""
        is_whole = part is None or part.rows is None
        return self._shared if is_whole and self._shared and key in self._shared else None

    def reserve(self) -> None:
        """Allocate what `gather` needs, once all is said to be restored. **Local.**"""
        if self._shared is not None:
            self._shared.reserve()

    def gather(self, ranks: SavingRanks) -> Exception | None:
        """Gather what was read together, and write it. **Collective.**

        Returns the first error of a write: the other ranks go on, and so does this one.
        """
        shared, self._shared = self._shared, None  # its memory is free after that
        if shared is None or ranks.communicator is None:
            return None

        def write_all(communicator: Communicator) -> list[Exception | None]:
            return [
                _error_of(write, value)
                for key, value in shared.gathered(communicator)
                for write in self._writes[key]
            ]

        errors = ranks.call(write_all, ranks.communicator)
        return next((error for error in errors if error is not None), None)


def _error_of(write: Callable[[Array], Any], value: Array) -> Exception | None:
    try:
        write(value)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told to all ranks
        return error
    return None


def _whole(matches: Matches) -> list[str]:
    """Return the names of the tensors that this rank restores as a whole, in the ranks' order."""
    found = [key for part, key in matches.parts if part.rows is None]
    for _, entry in matches.states:
        tensors = entry.get("tensors", {})
        found += [key for name, key in tensors.items() if name.startswith(STATE)]
    return list(dict.fromkeys(found))
