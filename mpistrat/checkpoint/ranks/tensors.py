"""The tensors of a checkpoint that a program restores: those of all ranks are read together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpistrat.checkpoint.files.data_files import DataFiles
from mpistrat.checkpoint.files.dtypes import as_dtype
from mpistrat.checkpoint.objects.graph import Graph
from mpistrat.checkpoint.objects.leaves import STATE
from mpistrat.checkpoint.objects.matching import Matches, match
from mpistrat.checkpoint.objects.saveable import Part
from mpistrat.checkpoint.ranks.saving_ranks import SavingRanks
from mpistrat.checkpoint.ranks.shared_reading import SharedReading, digest_of
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
            return digest_of(self._index, _whole(found[0]))

        digests = ranks.take(what, match_here)
        # Where ranks restore different things, each reads its own.
        if ranks.communicator is not None and len(set(digests)) == 1:
            self._read_together(what, _whole(found[0]), ranks)
        return found[0]

    def _read_together(self, what: str, keys: list[str], ranks: SavingRanks) -> None:
        made: list[SharedReading] = []

        def read() -> None:
            made.append(SharedReading(self._index, keys, ranks.rank, ranks.size))
            made[0].read(self._files)

        ranks.take(what, read)
        self._shared = made[0]

    def restore_later(self, part: Part, key: str) -> bool:
        """Let `gather` write a part, if it is one that copies what it is given."""
        is_one = part.copies and self._is_shared(part, key)
        if is_one:
            self._writes[key].append(part.write)
        return is_one

    def load(self, key: str, part: Part | None = None) -> Array:
        """Return a tensor, or a part of it, in an array of its own, which `gather` may fill."""
        if not self._is_shared(part, key):
            return self._files.load(key, None if part is None else part.rows)
        entry = self._index["tensors"][key]
        found: Array = np.empty(entry["shape"], as_dtype(entry["dtype"]))
        self._writes[key].append(lambda value: np.copyto(found, value))
        return found

    def _is_shared(self, part: Part | None, key: str) -> bool:
        is_whole = part is None or part.rows is None
        return is_whole and self._shared is not None and key in self._shared

    def gather(self, ranks: SavingRanks) -> Exception | None:
        """Gather what was read together, and write it. **Collective.**

        Returns the first error of a write: the other ranks go on, and so does this one.
        """
        if self._shared is None or ranks.communicator is None:
            return None
        errors = [
            _error_of(write, value)
            for key, value in self._shared.gathered(ranks.communicator)
            for write in self._writes[key]
        ]
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
