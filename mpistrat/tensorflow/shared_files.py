"""Let all ranks save to one path at once, without conflicts or partial files.

Programs made for one process save once; on several ranks each saves. Each writes in a folder of
its own (:mod:`mpistrat.system.staging`). The first that is done moves its files to the path, and
the others drop theirs: a rank whose call has returned can read what one rank wrote, whole. No rank
waits for a call of another, so that one alone can save too, but for variables that are summed over
all ranks to be read.

What was saved when, and the locks of those who move files, are in the job's folder
(:mod:`mpistrat.system.job_folder`): the folder of the path only ever has the program's files.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from mpistrat import config
from mpistrat.errors import CommunicationTimeoutError
from mpistrat.system import exit_hooks, job_folder
from mpistrat.system.exit_hooks import Phase
from mpistrat.system.file_locks import try_to_lock
from mpistrat.system.log import get_logger, warn_once
from mpistrat.system.staging import Staging
from mpistrat.tensorflow.errors import of_both
from mpistrat.tensorflow.private import api as private_api

if TYPE_CHECKING:
    from mpistrat.collectives import Communicator

__all__ = ["install", "written_whole"]

_LOG = get_logger(__name__)
_NAP_S = 1e-3

_LAST = (".index", "saved_model.pb")
"""Ends of the names of what refers to other files."""

_KIND = "saves"


class _Job:
    """Number the saves of a program, equally on all ranks."""

    def __init__(self) -> None:
        self.nonce = ""
        self.communicators: dict[str, weakref.ref[Communicator]] = {}  # each by a nonce
        self.saved: Counter[str] = Counter()
        self.time: tuple[str, dict[str, int]] = "", {}
        self.staging: Any = None  # a Staging, once `install` was called
        self.within = threading.local()

    def key(self, path: Path) -> _Key:
        """Return the place of a save of this path in the program's order. **Local.**"""
        # All ranks make the same collectives in the same order, so their numbers tell which saves
        # of different ranks belong together, without a message. They do not change while a rank
        # saves. A communicator counts until it is closed, which is a collective, too. A reference
        # to it cannot end sooner, at another time on each rank, as Python collects garbage: those
        # of a job are kept until they are closed (collectives/shutdown.py).
        calls = {nonce: one.call_log.sequence for nonce, one in self.open.items()}
        # Numbers start again: a rank may alone have saved more often before the last collective.
        if (self.nonce, calls) != self.time:
            self.time = self.nonce, calls
            self.saved.clear()
        self.saved[str(path)] += 1
        return _Key(self.nonce, calls, self.saved[str(path)])

    @property
    def open(self) -> dict[str, Communicator]:
        """The communicators that are not closed, each by its nonce."""
        found = {nonce: reference() for nonce, reference in self.communicators.items()}
        return {nonce: one for nonce, one in found.items() if one and not one.is_closed}


class _Key(NamedTuple):
    """A save: the collectives before it, by communicator, and its number since then.

    No collective returns before all ranks have begun it. But a rank can be ahead of another by
    saves between which there is no collective, or one that has only begun.
    """

    nonce: str
    calls: dict[str, int]
    number: int

    def is_not_after(self, other: _Key) -> bool:
        """Tell whether the other is this save, or a later one of the same strategies."""
        if self.nonce != other.nonce or self.calls.keys() != other.calls.keys():
            return False
        if self.calls == other.calls:
            return self.number <= other.number
        return all(number <= other.calls[nonce] for nonce, number in self.calls.items())


_job = _Job()


def install(communicator: Communicator) -> None:
    """Make TensorFlow write checkpoints and SavedModels atomically from now on. **Collective.**

    Functions wrapped by `written_whole` begin to do so, too.
    """
    if not _job.nonce:
        private_api.wrap_savers(partial(written_whole, makes_folders=True))
    # A part of each key, so that notes of another job or strategy never match.
    _job.nonce = communicator.bcast_object(secrets.token_hex(8))
    _share_folder(communicator)
    known = {nonce: _job.communicators[nonce] for nonce in _job.open}
    _job.communicators = known | {_job.nonce: weakref.ref(communicator)}


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
    key = _job.key(path)
    with staging.place_for(path) as place:
        _job.within.save = True  # a SavedModel writes a checkpoint, in a folder that is its own
        try:
            yield place / path.name
        finally:
            _job.within.save = False
        moves = _moves(place / path.name, path)
        # Under the lock: the first rank that comes moves its files. The others find its note and
        # return, and their own files go with their place. So does who comes late, when a rank that
        # is ahead has saved anew: its older files would replace those.
        with _notes(staging, path) as notes:
            there = _identity(moves)
            if not any(key.is_not_after(saved) and there == found for saved, found in notes):
                _move_all(staging, moves, path)
                kept = [note for note in notes if key.is_not_after(note[0])]
                # The identity anew: the target is the file that was moved just now.
                notes[:] = [*kept, (key, _identity(moves))]


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
def _notes(staging: Staging, path: Path) -> Iterator[list[tuple[_Key, str]]]:
    """Lock the path; yield the saves to it and what they left there, to be changed in place."""
    if staging.folder is None:
        yield []
        return
    staging.folder.ensure()
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    with (staging.folder.path / f"{name}.lock").open("a+") as file:
        _lock(file, path)
        file.seek(0)
        notes = [(_Key(*key), found) for key, found in json.loads(file.read() or "[]")]
        yield notes
        # Not reached if moving has failed: then there is no note, and the next rank moves its
        # files.
        file.truncate(0)
        # Closing the file gives the lock back. In mode a+ the text goes to the end, which is 0
        # now.
        file.write(json.dumps(notes))
