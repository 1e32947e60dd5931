"""Read and write a folder's file ``checkpoint``: its checkpoints, and the latest of them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mpistrat.checkpoint.files import index
from mpistrat.errors import CheckpointError
from mpistrat.system.files import atomic_files

__all__ = ["NAME", "Pointer", "latest_checkpoint", "read", "write"]

NAME = "checkpoint"


@dataclass(frozen=True)
class Pointer:
    """The content of the file.

    Attributes
    ----------
    names
        The checkpoints in its folder, the latest last.
    times
        When each was saved, in seconds since 1970.
    last_preserved
        When the last one was saved that is kept for good.
    """

    names: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    last_preserved: float = 0.0


def write(folder: Path, pointer: Pointer, name: str = NAME) -> None:
    """Replace the file as a whole. **Local.**"""
    atomic_files.replace_whole(
        folder / name, json.dumps(asdict(pointer), indent=1).encode() + b"\n"
    )


def read(folder: Path, name: str = NAME) -> Pointer:
    """Return the content of the file; without a file, no checkpoints. **Local.**

    Raises
    ------
    CheckpointError
        It is no such file.
    """
    try:
        data = (folder / name).read_bytes()
    except FileNotFoundError:
        return Pointer()
    except NotADirectoryError as error:
        raise CheckpointError(
            f"{folder} is a file; expected a folder of checkpoints, or where to make one"
        ) from error
    try:
        pointer = Pointer(**json.loads(data))
        names = [str(name) for name in pointer.names if _is_name(name)]
        times = [float(time) for time in pointer.times]
        preserved = float(pointer.last_preserved)
    except (TypeError, ValueError, RecursionError):
        # Unequal lengths, which the check below refuses.
        names, times, preserved = [], [-1.0], 0.0
    if len(names) != len(times):
        raise CheckpointError(
            f"{folder / name} is not a file that mpistrat wrote, or is corrupt; restore a"
            " checkpoint by its path, and remove that file to save to this folder"
        )
    return Pointer(names, times, preserved)


def _is_name(name: str) -> bool:
    """Tell whether a name stays inside its folder: nothing outside is ever deleted."""
    return Path(name).name == name and name not in ("", "..")


def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the path of the latest complete checkpoint in a folder, or None.

    Parameters
    ----------
    checkpoint_dir
        Where checkpoints were saved.
    latest_filename
        Name of the file that lists them; default ``checkpoint``.

    Raises
    ------
    CheckpointError
        That file is corrupt, or was written by another program.

    Notes
    -----
    **Local.** For a path that all ranks agree on, let one rank ask, or use
    ``CheckpointManager.restore_or_initialize``.

    References
    ----------
    tf.train.latest_checkpoint.
    """
    folder = Path(checkpoint_dir)
    for name in reversed(read(folder, latest_filename or NAME).names):
        # A manager lists a checkpoint until it is deleted, and deletes its index first.
        if (folder / name / index.NAME).is_file():
            return str(folder / name)
    return None
