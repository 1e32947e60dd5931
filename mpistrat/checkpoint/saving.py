"""Write a checkpoint: all ranks write their shares, then rank 0 writes the index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mpistrat.checkpoint.files import data_files, disk, index
from mpistrat.checkpoint.objects.graph import Graph, Node
from mpistrat.checkpoint.objects.saveable import row_count
from mpistrat.checkpoint.ranks import description
from mpistrat.checkpoint.ranks.description import Description
from mpistrat.checkpoint.ranks.division import shares
from mpistrat.checkpoint.ranks.kept_by_servers import Kept
from mpistrat.checkpoint.ranks.saving_ranks import SavingRanks
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import CheckpointError, CommunicationError
from mpistrat.system import log
from mpistrat.system.files import atomic_files
from mpistrat.types import Array

__all__ = ["data_name", "save"]

_LOG = log.get_logger(__name__)


def data_name(token: str, rank: int, size: int) -> str:
    """Return the name of a rank's file, with a token that is unique to this save."""
    return f"data-{token}-{rank:05d}-of-{size:05d}.safetensors"


def save(graph: Graph, path: Path, ranks: SavingRanks) -> None:
    """Write the objects of `graph` to the folder `path`. **Collective** over `ranks`.

    Raises
    ------
    CheckpointError
        A rank could not write; named on all ranks. What was at the path before is still there,
        and nothing else is left behind.
    MismatchError
        The ranks save different things, or to different paths.
    Exception
        Something cannot be saved.
    """
    what = f"saving to {path}"
    everyone = ranks.take(what, lambda: description.describe(graph.check(), str(path)))
    description.check_alike(everyone)
    known = description.merged_tensors(everyone)
    _Save(graph.nodes, path, ranks, everyone, known).run(what)


class _Save:
    """One save, after the ranks have compared their descriptions."""

    def __init__(
        self,
        nodes: Sequence[Node],
        path: Path,
        ranks: SavingRanks,
        everyone: Sequence[Description],
        known: dict[str, tuple[str, tuple[int, ...]]],
    ) -> None:
        self._nodes, self._path, self._ranks = nodes, path, ranks
        self._everyone, self._known = everyone, known
        self._token = everyone[0].token
        self._mine = path / data_name(self._token, ranks.rank, ranks.size)
        self._kept = Kept(description.tensors(nodes))
        self._stem = self._mine.name.removesuffix(".safetensors")
        self._new_folders: list[Path] = []

    def run(self, what: str) -> None:
        pieces: list[data_files.Piece] = []
        try:
            self._ranks.take(what, lambda: pieces.extend(self._begin()))
            files = self._ranks.take(what, lambda: self._write(pieces))
        except CommunicationError:
            raise  # the others may go on to use this rank's file
        except Exception:
            self._clean(what)
            raise
        self._ranks.take_first(what, lambda: self._commit([one for some in files for one in some]))

    def _begin(self) -> list[data_files.Piece]:
        """Make the folder, and read all values: those of some variables are collective."""
        # Before the folder: to read a value may be collective, and a rank that fails before would
        # leave the others waiting in it.
        pieces = self._pieces()
        if self._ranks.rank == 0:
            self._new_folders = disk.make_folder(self._path)
        return pieces

    def _pieces(self) -> list[data_files.Piece]:
        found = description.tensors(self._nodes)
        whole = [(key, _value(key, part)) for key, part in found if part.rows is None]
        sizes = [(value.nbytes, row_count(value.shape)) for _, value in whole]
        pieces: list[data_files.Piece] = []
        # Values that all ranks hold are divided by bytes, so that all ranks write equally long.
        for number, start, stop in shares(sizes, self._ranks.size)[self._ranks.rank]:
            key, value = whole[number]
            count = row_count(value.shape)
            rows = value if (start, stop) == (0, count) else value[start:stop]
            pieces.append((key, count, start, stop, rows))
        for key, part in found:
            if part.rows is None or part.keeper is not None:
                continue  # divided above, or written by its server
            if part.rows[0] < part.rows[1] or part.shape[0] == 0:
                pieces.append((key, row_count(part.shape), *part.rows, _value(key, part)))
        return pieces

    def _write(self, pieces: list[data_files.Piece]) -> list[dict[str, Any]]:
        try:
            mine = [data_files.write(self._mine, pieces)] if pieces else []
            return mine + self._kept.write(self._path, self._stem)
        except BaseException:
            # Also here, since `run` removes nothing after a CommunicationError or Ctrl-C.
            _remove(self._files(), [])
            raise

    def _files(self) -> list[Path]:
        """Return the paths of the files that this rank and its servers write."""
        return [self._mine, *self._kept.paths(self._path, self._stem)]

    def _clean(self, what: str) -> None:
        """Remove this save's files after all ranks know that one could not write."""
        self._ranks.take(what, lambda: _remove(self._files(), []))
        self._ranks.take_first(what, lambda: _remove([], self._new_folders))

    def _commit(self, files: list[dict[str, Any]]) -> None:
        """Replace the index, then remove the files that only the old one named."""
        is_done = False
        try:
            self._check_seen(files)  # an index must not name files that rank 0 cannot read
            made = index.assemble(description.merged_nodes(self._everyone), self._known, files)
            # The files' names must be on the disk before the index is.
            atomic_files.sync(self._path)
            with disk.alone(self._path):  # or else two savers may both replace the same one
                old = self._names()
                atomic_files.replace_whole(self._path / index.NAME, index.pack(made))
            is_done = True
        finally:
            # An error may come after the index was replaced: then its files must stay.
            if not is_done and not self._token_in_index():
                _remove(self._path.glob(f"data-{self._token}-*"), self._new_folders)
        _remove([self._path / name for name in old], [])

    def _check_seen(self, files: list[dict[str, Any]]) -> None:
        for file in files:
            seen = self._path / file["name"]
            if not seen.is_file() or seen.stat().st_size != file["nbytes"]:
                raise CheckpointError(
                    f"{seen}, which another rank wrote, is not seen by rank 0; expected a folder"
                    " on a file system that all ranks share"
                )

    def _names(self) -> list[str]:
        """Return the files of the checkpoint that this save replaces, if it is readable."""
        try:
            return [str(file["name"]) for file in index.read(self._path)["files"]]
        except CheckpointError:
            return []  # there is none, or it is corrupt: it is replaced all the same

    def _token_in_index(self) -> bool:
        path = self._path / index.NAME
        return path.is_file() and self._token in path.read_text(errors="replace")


def _remove(files: Iterable[Path], folders: list[Path]) -> None:
    """Remove files, and folders that are empty; ignore those that cannot be removed."""
    try:
        for file in files:
            if file.exists():
                file.unlink(missing_ok=True)
        disk.remove_empty(folders)
    except OSError as error:
        _LOG.warning("what is not needed any more stays: %s", error)


def _value(key: str, part: Any) -> Array:
    rows = part.rows or (0, row_count(part.shape))
    value = as_array(part.read())
    shape = (rows[1] - rows[0], *part.shape[1:]) if part.shape else ()
    if value.shape != shape or value.dtype != part.dtype:
        raise CheckpointError(
            f"{key!r} gave an array of shape {value.shape}, dtype {value.dtype}; expected {shape},"
            f" {part.dtype}"
        )
    return value
