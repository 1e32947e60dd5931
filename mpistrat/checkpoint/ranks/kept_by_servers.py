"""Save and restore parts on the parameter servers that keep them, all at once.

Each is asked for files of a limited size, one after the other: a long wait would look like a
failure, and it does nothing else meanwhile. The functions with a ``context`` run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mpistrat.checkpoint.files import data_files
from mpistrat.checkpoint.files.data_files import DataFiles
from mpistrat.checkpoint.objects.saveable import Keeper, Part, row_count

__all__ = ["FILE_BYTES", "Kept"]

FILE_BYTES = 1 << 28
"""Largest size of a file, unless a single row is longer."""

T = TypeVar("T")


class _Rows(NamedTuple):
    """Some rows of a tensor, to be sent; `offset` is the first row of the server's shard."""

    tensor: str
    total: int
    start: int
    stop: int
    handle: Any
    offset: int


class Kept:
    """All parts that servers keep for this rank.

    Parameters
    ----------
    parts
        With the names of their tensors in the checkpoint; those without a keeper are passed over.
    """

    def __init__(self, parts: Iterable[tuple[str, Part]]) -> None:
        by_keeper: dict[Keeper, list[tuple[str, Part]]] = {}
        for key, part in parts:
            if part.keeper is not None:
                by_keeper.setdefault(part.keeper, []).append((key, part))
        self._groups = {keeper: list(_files(some)) for keeper, some in by_keeper.items()}

    def paths(self, folder: Path, stem: str) -> list[Path]:
        """Return the paths of the files that `write` is going to make."""
        return [path for some in self._paths(folder, stem).values() for path in some]

    def write(self, folder: Path, stem: str) -> list[dict[str, Any]]:
        """Let the servers write all parts; return the files' entries of the index.

        Parameters
        ----------
        folder
            That all keepers see.
        stem
            Begins the files' names; no other rank or save has it.
        """
        paths = self._paths(folder, stem)

        def write(keeper: Keeper) -> list[dict[str, Any]]:
            files = zip(paths[keeper], self._groups[keeper], strict=True)
            return [keeper.call(write_rows, str(path), rows) for path, rows in files]

        return [entry for entries in self._at_once(write) for entry in entries]

    def stage(self, folder: Path, index: Mapping[str, Any], token: str) -> None:
        """Let the servers read and check all parts into new memory; then `commit` or `drop`.

        Parameters
        ----------
        token
            No other restore has it.
        """

        def stage(keeper: Keeper) -> None:
            for rows in self._groups[keeper]:
                keeper.call(stage_rows, token, str(folder), _excerpt(index, rows), rows)

        self._at_once(stage)

    def commit(self, token: str) -> None:
        """Let the servers replace their values by the staged ones."""
        self._at_once(lambda keeper: keeper.call(commit_rows, token))

    def drop(self, token: str) -> None:
        """Let the servers free the staged values, if there are any."""
        self._at_once(lambda keeper: keeper.call(drop_rows, token))

    def _paths(self, folder: Path, stem: str) -> dict[Keeper, list[Path]]:
        return {
            keeper: [folder / f"{stem}-kept-{number}-{i}.safetensors" for i in range(len(files))]
            for number, (keeper, files) in enumerate(self._groups.items())
        }

    def _at_once(self, step: Callable[[Keeper], T]) -> list[T]:
        """Take a step on all servers at once; raise an error only after all have ended."""
        if not self._groups:
            return []
        # A thread each, since a call waits for its server. Leaving the block joins all threads, so
        # that no server still writes when the first error goes up and files are removed.
        with ThreadPoolExecutor(len(self._groups)) as pool:
            waiting = [pool.submit(step, keeper) for keeper in self._groups]
        return [one.result() for one in waiting]


def _files(parts: Iterable[tuple[str, Part]]) -> Iterator[list[_Rows]]:
    """Return the rows of each file."""
    file: list[_Rows] = []
    room = FILE_BYTES
    for key, part in parts:
        for rows, nbytes in _cut(key, part):
            if file and nbytes > room:
                yield file
                file, room = [], FILE_BYTES
            file.append(rows)
            room -= nbytes
    if file:
        yield file


def _cut(key: str, part: Part) -> Iterator[tuple[_Rows, int]]:
    """Return the rows of a part, cut where a file would be too long, and their bytes."""
    count = row_count(part.shape)
    first, last = part.rows or (0, count)
    size = part.dtype.itemsize
    for length in part.shape[1:]:
        size *= length
    step = max(1, FILE_BYTES // max(1, size))
    # A tensor without rows still needs a piece: the index has its dtype and shape from there.
    starts = range(first, last, step) if first < last or count else [0]
    for start in starts:
        stop = min(start + step, last)
        yield _Rows(key, count, start, stop, part.handle, first), (stop - start) * size


def _excerpt(index: Mapping[str, Any], rows: Iterable[_Rows]) -> dict[str, Any]:
    """Return the part of an index that is needed to read some rows."""
    tensors = {one.tensor: index["tensors"][one.tensor] for one in rows}
    names = {piece["file"] for entry in tensors.values() for piece in entry["pieces"]}
    return {"tensors": tensors, "files": [one for one in index["files"] if one["name"] in names]}


def write_rows(context: Any, path: str, rows: Iterable[_Rows]) -> dict[str, Any]:
    """Write rows of a server to a file; return its entry of the index."""
    # Views, without a copy: until the file is written, pushes go to other memory of the shards.
    with ExitStack() as stack:
        pieces = []
        for one in rows:
            array = stack.enter_context(context.shard(one.handle).view())
            mine = array[one.start - one.offset : one.stop - one.offset]
            pieces.append((one.tensor, one.total, one.start, one.stop, mine))
        return data_files.write(Path(path), pieces)


def stage_rows(
    context: Any, token: str, folder: str, index: Mapping[str, Any], rows: Iterable[_Rows]
) -> None:
    """Read and check rows of a checkpoint into new memory."""
    files = DataFiles(Path(folder), index)
    staged = context.staged.setdefault(token, [])
    for one in rows:
        staged.append((one, files.load(one.tensor, (one.start, one.stop))))


def commit_rows(context: Any, token: str) -> None:
    """Replace a shard's rows by the staged ones."""
    for one, value in context.staged.pop(token, ()):
        shard = context.shard(one.handle)
        if value.shape == shard.shape:
            shard.assign(value)
        else:
            rows = np.arange(one.start - one.offset, one.stop - one.offset)
            shard.assign_rows(rows, value)


def drop_rows(context: Any, token: str) -> None:
    """Free the staged rows."""
    context.staged.pop(token, None)
