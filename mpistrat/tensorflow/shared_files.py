"""Let all ranks save to one path at once, without conflicts or partial files.

Programs made for one process save once; on several ranks each saves. Each writes in a folder of
its own (:mod:`mpistrat.system.files.staging`). The first that is done moves its files to the
path, and the others drop theirs: a rank whose call has returned can read what one rank wrote,
whole. No rank waits for a call of another, so that one alone can save too, except where variables
are summed over all ranks to be read.

What was saved when, and the locks of those who move files, are in the job's folder
(:mod:`mpistrat.system.files.job_folder`): the folder of the path only ever has the program's
files.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import tensorflow as tf

from mpistrat import config
from mpistrat.errors import CommunicationTimeoutError
from mpistrat.system.files import job_folder
from mpistrat.system.files.file_locks import try_to_lock
from mpistrat.system.files.staging import Staging
from mpistrat.system.log import get_logger, warn_once
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase
from mpistrat.tensorflow.errors import of_both
from mpistrat.tensorflow.private import api as private_api

if TYPE_CHECKING:
    from mpistrat.collectives import Communicator

__all__ = ["install", "num_ranks", "written_whole"]

_LOG = get_logger(__name__)
_NAP_S = 1e-3

_LAST = (".index", "saved_model.pb")
"""Ends of the names of what refers to other files."""

_KIND = "saves"


class _Job:
    """Number the saves of a program, equally on all ranks."""

    def __init__(self) -> None:
        self.nonce = ""
        self.communicators: list[weakref.ref[Communicator]] = []
        self.saved: Counter[str] = Counter()
        self.time = ""
        self.staging: Any = None  # a Staging, once `install` was called
        self.within = threading.local()

    def now(self) -> str:
        """Return the number of collectives so far, which does not change while a rank saves."""
        # All ranks make the same collectives in the same order, so these numbers tell which saves
        # of different ranks belong together, without a message.
        found = [reference() for reference in self.communicators]
        return f"{self.nonce} {[c.call_log.sequence for c in found if c and not c.is_closed]}"

    def key(self, path: Path) -> tuple[str, str]:
        """Return a save's key: the collectives before it, and its number since then. **Local.**"""
        now = self.now()
        # Numbers start again: a rank may alone have saved more often before the last collective.
        if now != self.time:
            self.time = now
            self.saved.clear()
        self.saved[str(path)] += 1
        return now, f"{self.saved[str(path)]} {path.name}"


_job = _Job()


def install(communicator: Communicator) -> None:
    """Make TensorFlow write checkpoints and SavedModels atomically from now on. **Collective.**

    Functions wrapped by `written_whole` begin to do so, too.
    """
    if not _job.nonce:
        private_api.wrap_savers(partial(written_whole, makes_folders=True))
        private_api.replace_deletion(_delete)
    # A part of each key, so that notes of another job or strategy never match.
    _job.nonce = communicator.bcast_object(secrets.token_hex(8))
    _share_folder(communicator)
    still_open = [one for one in _job.communicators if (c := one()) and not c.is_closed]
    _job.communicators = [*still_open, weakref.ref(communicator)]


def num_ranks() -> int:
    """Return the most ranks of any strategy that is open. **Local.**"""
    found = (reference() for reference in _job.communicators)
    return max((c.size for c in found if c and not c.is_closed), default=1)


def _delete(pattern: str) -> None:
    """Delete files, if no other rank has: TensorFlow would warn of each."""
    for path in tf.io.gfile.glob(pattern):
        with suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(path)


def _share_folder(communicator: Communicator) -> None:
    """Use rank 0's job folder on all ranks. **Collective.**"""
    # Only rank 0 makes the folder. It is told to the others, who may not see its file system.
    if communicator.rank == 0 and _job.staging is None:
        job_folder.remove_left(_KIND)
        _use(_job.nonce, job_folder.made_for(_KIND, _job.nonce))
    mine = _job.staging
    nonce, path = communicator.bcast_object(mine and (mine.nonce, mine.path))
    # A later strategy may have another rank 0, with another folder.
    if mine is None or mine.nonce != nonce:
        _use(nonce, path and job_folder.joined(_KIND, nonce, path))
    folder = _job.staging.folder
    seen = communicator.allgather_object(folder is not None and folder.is_common)
    if not all(seen):
        others = [rank for rank, sees in enumerate(seen) if not sees]
        warn_once(
            _LOG,
            "no common folder",
            f"ranks {others} cannot write to {path or 'any folder'}, where rank 0 notes what was"
            " saved: of files that they save to one path, which are whole, those of the last one"
            " stay; set MPISTRAT_CACHE to a folder that all ranks see",
        )


def _use(nonce: str, folder: job_folder.JobFolder | None) -> None:
    _job.staging = Staging(_KIND, nonce, folder)
    exit_hooks.register(Phase.FILES, _job.staging.leave)


def written_whole(original: Callable[..., Any], makes_folders: bool = False) -> Callable[..., Any]:
    """Wrap what saves an object to a path, its first two arguments: a file, a folder, a prefix.

    Where `original` does not make the folder of the path, it is to say by itself that there is
    none.
    """

    @wraps(original)
    def save(what: Any, *args: Any, **kwargs: Any) -> Any:
        is_outer = _job.nonce and not getattr(_job.within, "save", False)
        path = _local_path(args[0]) if args and is_outer else None
        if path is None or not (makes_folders or path.parent.is_dir()):
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
    """Return a path, links resolved; None if it cannot be renamed, such as a URL or a pipe."""
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
    """Yield a unique path; then rename all files that begin with it to the requested path."""
    staging = _job.staging
    now, save = _job.key(path)
    with staging.place_for(path) as place:
        _job.within.save = True  # a SavedModel writes a checkpoint, in a folder that is its own
        try:
            yield place / path.name
        finally:
            _job.within.save = False
        moves = _moves(place / path.name, path)
        # Under the lock: the first rank that comes moves its files. The others find its note and
        # return, and their own files go with their place.
        with _notes(staging, path, now) as notes:
            if f"{save} {_identity(moves)}" not in notes:
                _move_all(staging, moves, path)
                # The identity anew: the target is the file that was moved just now.
                notes.append(f"{save} {_identity(moves)}")


def _moves(own: Path, path: Path) -> dict[Path, Path]:
    """Return the targets of all files and folders, an index after the files that it names."""
    mine = own.parent.glob(f"{glob.escape(own.name)}*")
    # A prefix stands for several files: `.index` and `.data-...`, or a folder and all in it.
    found = [one for top in mine for one in (top, *top.rglob("*"))]
    return {one: Path(f"{path}{str(one)[len(str(own)) :]}") for one in sorted(found, key=_order)}


def _identity(moves: dict[Path, Path]) -> str:
    """Return the identity of the last file at its target, to detect another machine's file.

    A path may be another file on each machine (as ``/tmp`` is), or have been removed meanwhile:
    then what another rank has saved there is not what this rank sees.
    """
    files = [target for target in moves.values() if not target.is_dir()]
    try:
        status = files[-1].stat()
    except (IndexError, OSError):
        return "none"
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _move_all(staging: Staging, moves: dict[Path, Path], path: Path) -> None:
    """Move file by file; an index comes after the files that it names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in (target for one, target in moves.items() if one.is_dir()):
        folder.mkdir(exist_ok=True)
    for one, target in moves.items():
        if not one.is_dir():
            staging.move(one, target)


def _order(file: Path) -> int:
    return max((i + 1 for i, end in enumerate(_LAST) if file.name.endswith(end)), default=0)


def _lock(file: IO[str], path: Path) -> None:
    """Wait until no other rank moves files to this path.

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
            f" moves what it saved to {path}; look whether it was stopped, and whether the file"
            " system answers"
        )


@contextmanager
def _notes(staging: Staging, path: Path, now: str) -> Iterator[list[str]]:
    """Lock the path; yield the list of names that were saved in this save, to be extended."""
    if staging.folder is None:
        yield []
        return
    staging.folder.ensure()
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    with (staging.folder.path / f"{name}.lock").open("a+") as file:
        _lock(file, path)
        file.seek(0)
        at, *names = file.read().split("\n")
        found = names if at == now else []
        yield found
        # Not reached if moving has failed: then there is no note, and the next rank moves its
        # files.
        file.truncate(0)
        # Closing the file gives the lock back. In mode a+ the text goes to the end, which is 0
        # now.
        file.write("\n".join([now, *found]))
