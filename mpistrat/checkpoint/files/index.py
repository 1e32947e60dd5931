"""Read and write ``index.json``: the objects and tensors of a checkpoint, and their files.

::

    {"sha256": of the index, "index": {
        "format": "mpistrat checkpoint", "version": 1,
        "nodes": [{"children": {name: node}, "tensors": {part: tensor}, "state": .., "value": ..}],
        "tensors": {name: {"dtype", "shape", "pieces": [{"file", "rows", "sha256"}]}},
        "files": [{"name", "nbytes", "header_sha256"}]}}

Node 0 is the `Checkpoint`. The JSON is in one canonical form, so every changed byte shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpistrat.checkpoint.files.dtypes import as_dtype
from mpistrat.checkpoint.objects.saveable import row_count
from mpistrat.errors import CheckpointError, CheckpointNotFoundError

__all__ = ["NAME", "assemble", "pack", "read"]

NAME = "index.json"
_FORMAT, _VERSION = "mpistrat checkpoint", 1
# No slash and no dot in front: a name in an index cannot lead out of the checkpoint's folder.
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors")


def assemble(
    nodes: Sequence[Mapping[str, Any]],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    files: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the index of a checkpoint.

    Parameters
    ----------
    nodes
        The objects.
    tensors
        dtype and shape of each tensor.
    files
        What :func:`mpistrat.checkpoint.files.data_files.write` returned for each file.

    Raises
    ------
    CheckpointError
        Rows of a tensor are in no file, or in several.
    """
    held: dict[str, list[dict[str, Any]]] = {name: [] for name in tensors}
    for file in files:
        for piece in file["pieces"]:
            rest = {name: piece[name] for name in ("rows", "sha256")}
            held[piece["tensor"]].append({"file": file["name"], **rest})
    entries = {}
    for name, (dtype, shape) in tensors.items():
        pieces = sorted(held[name], key=lambda piece: piece["rows"])
        entries[name] = {"dtype": dtype, "shape": list(shape), "pieces": pieces}
        _check_rows(name, entries[name])
    kept = [{n: one[n] for n in ("name", "nbytes", "header_sha256")} for one in files]
    head = {"format": _FORMAT, "version": _VERSION}
    return {**head, "nodes": list(nodes), "tensors": entries, "files": kept}


def pack(index: Mapping[str, Any]) -> bytes:
    """Return an index as the bytes of its file, with a checksum."""
    body = json.dumps(index, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"sha256":"{digest}","index":{body}}}\n'.encode()


def read(folder: Path) -> dict[str, Any]:
    """Return the index of a checkpoint, checked.

    Raises
    ------
    CheckpointNotFoundError
        There is none.
    CheckpointError
        It is corrupt, of a newer version, or names files outside of the folder.
    """
    path = folder / NAME
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFoundError(
            f"there is no complete checkpoint at {folder}: it has no {NAME}; pass a path that"
            " save() or latest_checkpoint() returned"
        ) from None
    try:
        index: dict[str, Any] = json.loads(data)["index"]
        is_same = pack(index) == data
    except (ValueError, KeyError, TypeError, RecursionError):
        is_same = False
    if not is_same:
        raise CheckpointError(
            f"checkpoint {folder}: file {NAME} is not what was saved; restore another checkpoint,"
            " nothing was changed"
        )
    _check(folder, index)
    return index


def _check(folder: Path, index: dict[str, Any]) -> None:
    try:
        _check_format(index.get("format"), index.get("version"))
        names = {file["name"] for file in index["files"]}
        bad = [name for name in names if not _FILE_NAME.fullmatch(name)]
        if bad:
            raise CheckpointError(f"it names the file {bad[0]!r}, outside of the checkpoint")
        for name, entry in index["tensors"].items():
            as_dtype(entry["dtype"])
            _check_rows(name, entry)
            if not names.issuperset(piece["file"] for piece in entry["pieces"]):
                raise CheckpointError(f"tensor {name!r} is in a file that it does not list")
        _check_nodes(index["nodes"], index["tensors"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {folder}: {NAME} is malformed: {error!r}") from error
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {folder}: {NAME}: {error}") from None


def _check_format(name: Any, version: Any) -> None:
    if name != _FORMAT or version != _VERSION:
        raise CheckpointError(
            f"it is of format {name!r}, version {version!r}; expected {_FORMAT!r}, version"
            f" {_VERSION}"
        )


def _check_nodes(nodes: Any, tensors: Mapping[str, Any]) -> None:
    for node in nodes:
        if not all(0 <= child < len(nodes) for child in node.get("children", {}).values()):
            raise CheckpointError("an object has a child that is not there")
        if not all(name in tensors for name in node.get("tensors", {}).values()):
            raise CheckpointError("an object has a tensor that is not there")
    if not nodes:
        raise CheckpointError("it has no objects")


def _check_rows(name: str, entry: Mapping[str, Any]) -> None:
    """Check that the pieces of a tensor cover each of its rows once, in order."""
    count, end = row_count(entry["shape"]), 0
    for piece in entry["pieces"]:
        start, stop = piece["rows"]
        if start != end or stop < start:
            raise CheckpointError(
                f"rows {start} to {stop} of tensor {name!r} follow row {end}; expected each"
                " row once"
            )
        end = stop
    if end != count:
        raise CheckpointError(f"tensor {name!r} has {end} rows in files, expected {count}")
