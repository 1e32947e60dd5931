"""The safetensors files of a checkpoint: written once, checked byte by byte when they are read."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mpistrat.checkpoint.files.dtypes import as_dtype, flat_bytes, stored, unstored
from mpistrat.checkpoint.objects.names import piece_name
from mpistrat.checkpoint.objects.saveable import row_count
from mpistrat.errors import CheckpointError
from mpistrat.system.files import atomic_files
from mpistrat.types import Array

__all__ = ["DataFiles", "Piece", "write"]

Piece = tuple[str, int, int, int, Array]
"""A tensor's name, its number of rows, the start and stop of those here, and their values."""

_MOST_HEADER_BYTES = 100_000_000  # the format's own limit


def write(path: Path, pieces: Iterable[Piece]) -> dict[str, Any]:
    """Write pieces to a file; return its entry of the index, once it is on the disk.

    Raises
    ------
    CheckpointError, OSError
        It cannot be written; what there is of it is left.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays, entries = {}, []
    for key, count, start, stop, value in pieces:
        array = stored(value)
        arrays[piece_name(key, (start, stop), count)] = array
        digest = hashlib.sha256(flat_bytes(array).data).hexdigest()
        entries.append({"tensor": key, "rows": [start, stop], "sha256": digest})
    try:
        save_file(arrays, path)
    except SafetensorError as error:  # the system's errors as well
        raise CheckpointError(f"{path} cannot be written: {error}") from error
    # On the disk before any index names it: a machine may crash between the two.
    atomic_files.sync(path)
    # The pieces' digests cover their data only; the header has their names, shapes and offsets.
    header = hashlib.sha256(_header(path)).hexdigest()
    return {
        "name": path.name,
        "nbytes": path.stat().st_size,
        "header_sha256": header,
        "pieces": entries,
    }


def _header(path: Path) -> bytes:
    """Return the header of a safetensors file."""
    with path.open("rb") as file:
        begin = file.read(8)
        length = int.from_bytes(begin, "little")
        # A corrupt length could ask for any number of bytes.
        return begin + file.read(min(length, _MOST_HEADER_BYTES))


class DataFiles:
    """Open data files of a checkpoint, as its index names them.

    Parameters
    ----------
    folder
        The checkpoint.
    index
        Its index.

    Raises
    ------
    CheckpointError
        From its methods: a file is missing, cut off or changed. The message names it.
    """

    def __init__(self, folder: Path, index: Mapping[str, Any]) -> None:
        self._folder, self._tensors = folder, index["tensors"]
        self._files = {file["name"]: file for file in index["files"]}
        self._open: dict[str, Any] = {}

    def check(self, rank: int, size: int) -> None:
        """Check the lengths and headers of this rank's share of the files."""
        for name in list(self._files)[rank::size]:
            self._opened(name)

    def load(self, key: str, rows: tuple[int, int] | None = None) -> Array:
        """Read a tensor, or some of its rows, into new memory."""
        entry = self._tensors[key]
        shape, dtype = tuple(entry["shape"]), as_dtype(entry["dtype"])
        count = row_count(shape)
        start, stop = rows or (0, count)
        wanted = [
            one
            for one in entry["pieces"]
            # A tensor without rows has one piece of no rows, which overlaps nothing.
            if max(start, one["rows"][0]) < min(stop, one["rows"][1]) or count == 0
        ]
        if len(wanted) == 1 and wanted[0]["rows"] == [start, stop]:
            return self.piece(key, wanted[0])
        result = np.empty((stop - start, *shape[1:]), dtype)
        for one in wanted:
            a, b = one["rows"]
            low, high = max(start, a), min(stop, b)
            piece = self.piece(key, one)
            result[low - start : high - start] = piece[low - a : high - a]
        return result

    def piece(self, key: str, entry: Mapping[str, Any]) -> Array:
        """Read one of the pieces of a tensor, as the index has it, into new memory."""
        whole = self._tensors[key]
        shape, dtype = tuple(whole["shape"]), as_dtype(whole["dtype"])
        start, stop = entry["rows"]
        file = self._opened(entry["file"])
        name = piece_name(key, (start, stop), row_count(shape))
        try:
            found = file.get_tensor(name)
        except Exception as error:  # noqa: BLE001 - the library has an error type for each cause
            self._refuse(entry["file"], f"{name!r} cannot be read from it: {error}")
        array = unstored(found, dtype, (stop - start, *shape[1:]) if shape else ())
        if array is None:
            self._refuse(entry["file"], f"{name!r} has shape {found.shape}, dtype {found.dtype}")
        if hashlib.sha256(flat_bytes(array).data).hexdigest() != entry["sha256"]:
            self._refuse(entry["file"], f"the bytes of {name!r} have changed since it was written")
        return array

    def _opened(self, name: str) -> Any:
        if name not in self._open:
            from safetensors import safe_open

            path, expected = self._folder / name, self._files[name]
            self._check_file(path, expected)
            try:
                self._open[name] = safe_open(path, framework="numpy")
            except Exception as error:  # noqa: BLE001 - as above
                self._refuse(name, f"it cannot be opened: {error}")
        return self._open[name]

    def _check_file(self, path: Path, expected: Mapping[str, Any]) -> None:
        try:
            # A link is refused and not followed: it could lead out of the checkpoint.
            status = os.lstat(path)
        except FileNotFoundError:
            self._refuse(path.name, "it is missing")
        if not stat.S_ISREG(status.st_mode):
            self._refuse(path.name, "it is not a file of its own (a link, a folder, ...)")
        if status.st_size != expected["nbytes"]:
            self._refuse(
                path.name, f"it has {status.st_size} bytes, expected {expected['nbytes']}"
            )
        if hashlib.sha256(_header(path)).hexdigest() != expected["header_sha256"]:
            self._refuse(path.name, "its header has changed since it was written")

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise CheckpointError(
            f"checkpoint {self._folder}: file {name} is not what was saved: {why}; restore another"
            " checkpoint, nothing was changed"
        )
