"""Files that all ranks may write to one path at once, and that nobody sees half of.

Programs made for one process save once; on several ranks each saves. Each writes under a name of
its own beside the path. The first that is done gives its files the path's name, and the others
drop theirs: a rank whose call has returned can read what one rank wrote, whole. No rank waits for
a call of another, so that one alone can save too, but for variables that are summed over all ranks
to be read.
"""

from __future__ import annotations

import atexit
import glob
import os
import secrets
import shutil
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import tensorflow as tf

from mpistrat import config
from mpistrat.cluster.file_locks import try_to_lock
from mpistrat.cluster.log import get_logger, warn_once
from mpistrat.errors import CommunicationTimeoutError
from mpistrat.tensorflow import private_api
from mpistrat.tensorflow.errors import of_both

if TYPE_CHECKING:
    from mpistrat.collectives import Communicator

__all__ = ["install", "written_whole"]

_LOG = get_logger(__name__)
_NAP_S = 1e-3

_LAST = (".index", "saved_model.pb")
"""Ends of the names of what refers to other files."""

_NOTES = ".mpistrat_saved"
"""File in the same folder: what was written there since the ranks' last collective."""


class _Job:
    """What tells the saves of a program apart, alike on all ranks."""

    def __init__(self) -> None:
        self.nonce = ""
        self.communicators: list[weakref.ref[Communicator]] = []
        self.saved: Counter[str] = Counter()
        self.time = ""
        self.notes: set[Path] = set()
        self.within = threading.local()

    def now(self) -> str:
        """Return how many collectives there were; none while a rank saves by itself."""
        found = [reference() for reference in self.communicators]
        return f"{self.nonce} {[c.gate.sequence for c in found if c and not c.is_closed]}"

    def key(self, path: Path) -> tuple[str, str]:
        """Return the time of a save, and which one it is at that time. **Local.**"""
        now = self.now()
        if now != self.time:
            self.time = now
            self.saved.clear()
        self.saved[str(path)] += 1
        return now, f"{self.saved[str(path)]} {path.name}"

    def remove_notes(self) -> None:
        for notes in self.notes:
            notes.unlink(missing_ok=True)


_job = _Job()


def install(communicator: Communicator) -> None:
    """From now on write whole checkpoints and SavedModels. **Collective.**

    Functions wrapped by `written_whole` begin to do so, too.
    """
    if not _job.nonce:
        private_api.wrap_savers(written_whole)
        atexit.register(_job.remove_notes)
    _job.nonce = communicator.bcast_object(secrets.token_hex(8))
    still_open = [one for one in _job.communicators if (c := one()) and not c.is_closed]
    _job.communicators = [*still_open, weakref.ref(communicator)]


def written_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what saves an object to a path, its first two arguments: a file, a folder, a prefix."""

    @wraps(original)
    def save(what: Any, *args: Any, **kwargs: Any) -> Any:
        is_outer = _job.nonce and not getattr(_job.within, "save", False)
        path = _local_path(args[0]) if args and is_outer else None
        if path is None:
            return original(what, *args, **kwargs)
        with _own_name(path) as own:
            try:
                return original(what, str(own), *args[1:], **kwargs)
            except CommunicationTimeoutError as error:
                raise _saved_alone(path, error) from error

    return save


def _saved_alone(path: Path, error: CommunicationTimeoutError) -> Exception:
    text = (
        f"saving {path} by some ranks; expected all: variables with ON_READ, such as Keras's"
        " metrics, are summed over them to be saved. Call this on all ranks, of whose files one is"
        f" kept: {error}"
    )
    found: Exception = of_both(CommunicationTimeoutError(text, error.missing))
    return found


def _local_path(value: Any) -> Path | None:
    """Return a path, links resolved; None for what cannot be renamed, such as a URL or a pipe."""
    if not tf.executing_eagerly():
        return None  # a graph that will save later
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if not isinstance(value, (str, bytes, os.PathLike)) or "://" in os.fsdecode(value):
        return None
    path = Path(os.path.realpath(os.fsdecode(value)))
    is_special = path.exists() and not path.is_file() and not path.is_dir()
    return None if is_special else path


@contextmanager
def _own_name(path: Path) -> Iterator[Path]:
    """Yield a name that no other has; all files whose names begin so get the path's at the end."""
    own = path.with_name(f".{secrets.token_hex(6)}.{path.name}")
    now, save = _job.key(path)
    _job.within.save = True  # a SavedModel writes a checkpoint, in a folder that is its own
    try:
        yield own
        with _notes(path.parent, now) as notes:
            if save not in notes:
                _rename_all(own, path)
                notes.append(save)
    finally:
        _job.within.save = False
        for left in _mine(own):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _mine(own: Path) -> list[Path]:
    return list(own.parent.glob(f"{glob.escape(own.name)}*"))


def _rename_all(own: Path, path: Path) -> None:
    """Rename file by file, those that refer to others last."""
    found = [one for top in _mine(own) for one in (top, *top.rglob("*"))]
    moves = {one: Path(f"{path}{str(one)[len(str(own)) :]}") for one in found}
    for folder in (target for one, target in moves.items() if one.is_dir()):
        folder.mkdir(exist_ok=True)
    for one in sorted(moves, key=_order):
        if not one.is_dir():
            one.replace(moves[one])


def _order(file: Path) -> int:
    return max((i + 1 for i, end in enumerate(_LAST) if file.name.endswith(end)), default=0)


def _lock(file: IO[str]) -> None:
    """Wait until no other rank renames files in this folder.

    Raises
    ------
    CommunicationTimeoutError
        That takes longer than ``MPISTRAT_TIMEOUT``.
    """
    try:
        is_locked = try_to_lock(file, config.timeout_s(), _NAP_S)
    except OSError as error:
        text = f"{file.name} cannot be locked ({error}): of files that several ranks save to"
        warn_once(_LOG, "no file locks", f"{text} one path, those of the last one stay")
        return
    if not is_locked:
        raise CommunicationTimeoutError(
            f"another rank holds the lock {file.name} for {config.timeout_s():.0f} s while it"
            " renames what it saved; look whether it was stopped, and whether the file system"
            " answers"
        )


@contextmanager
def _notes(folder: Path, now: str) -> Iterator[list[str]]:
    """Hold the folder's lock; yield the names of what was saved at this time, to be added to."""
    _job.notes.add(folder / _NOTES)
    with (folder / _NOTES).open("a+") as file:
        _lock(file)
        file.seek(0)
        at, *names = file.read().split("\n")
        found = names if at == now else []
        yield found
        file.truncate(0)
        file.write("\n".join([now, *found]))
