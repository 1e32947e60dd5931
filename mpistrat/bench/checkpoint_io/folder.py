"""Make a folder that all ranks see, and delete it in the end."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpistrat import Communicator
from mpistrat.errors import UsageError
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase

__all__ = ["shared_folder"]

_DELETING_S = 5.0  # after Ctrl-C other ranks may still write for a moment
_NAP_S = 0.1


@contextmanager
def shared_folder(
    parent: Path | None, needed_bytes: int, communicator: Communicator
) -> Iterator[Path]:
    """Make a new folder, and delete it with all that is in it, also after an error.

    **Collective** to enter; leaving is local, since after an error ranks may be apart.

    Parameters
    ----------
    parent
        Where rank 0 makes it; by default where temporary files go.
    needed_bytes
        What will be written.
    communicator
        Of the ranks that use it.

    Raises
    ------
    UsageError
        It cannot be made, has too little space, or a rank does not see it.
    """
    folder, reason = None, None
    with _ended_by_terminate():
        try:
            if communicator.rank == 0:
                folder, reason = _make(parent, needed_bytes, communicator.topology.num_nodes)
            yield _agreed(folder, reason, communicator)
        finally:
            if folder is not None:
                _delete(folder)


def _make(parent: Path | None, needed: int, nodes: int) -> tuple[Path | None, str | None]:
    """Return a new folder, or why there is none. **Local.**"""
    if parent is None and nodes > 1:
        return None, (
            f"the job has {nodes} machines, which do not share the folder of temporary files;"
            " pass --folder PATH on a file system that they share"
        )
    try:
        folder = Path(tempfile.mkdtemp(prefix="mpistrat-io-", dir=parent)).absolute()
    except OSError as error:
        return None, f"--folder {parent}: {error}; expected an existing folder to write in"
    # An abort of the job skips what follows a `with` statement, but not this.
    exit_hooks.register(Phase.FILES, lambda: _delete(folder))
    free = shutil.disk_usage(folder).free
    if free < needed:
        _delete(folder)
        return None, (
            f"{folder.parent} has {free / 1e9:.2f} GB free, and {needed / 1e9:.2f} GB are needed;"
            " pass fewer --bytes, or another --folder"
        )
    return folder, None


def _agreed(folder: Path | None, reason: str | None, communicator: Communicator) -> Path:
    """Return rank 0's folder; raise on all ranks if one of them does not see it."""
    path, reason = communicator.bcast_object((folder, reason))
    if reason is not None:
        raise UsageError(reason)
    seen = communicator.allgather_object(path.is_dir())
    if not all(seen):
        raise UsageError(
            f"rank {seen.index(False)} does not see {path}, which rank 0 has made; pass --folder"
            " PATH on a file system that all ranks share"
        )
    return Path(path)


@contextmanager
def _ended_by_terminate() -> Iterator[None]:
    """Let the signal by which batch systems end a job raise as Ctrl-C does. **Local.**"""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _delete(folder: Path) -> None:
    end = time.monotonic() + _DELETING_S
    while (error := _try_to_delete(folder)) is not None:
        if time.monotonic() > end:
            sys.stderr.write(f"mpistrat.bench io: {folder} stays: {error}; delete it\n")
            return
        time.sleep(_NAP_S)


def _try_to_delete(folder: Path) -> OSError | None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        return error if folder.exists() else None
    return None
