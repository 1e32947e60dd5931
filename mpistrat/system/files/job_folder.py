"""A temporary folder of one MPI job, removed by its last process, or later if it was killed.

Each process of the job holds a shared lock in it, and the last to end removes it. The kernel gives
back the locks of a killed process: a later job of the user removes the folders that are old and in
which nobody holds a lock, and the hidden folders elsewhere that they have notes of.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpistrat import config
from mpistrat.system.files.file_locks import try_to_lock, try_to_share

__all__ = ["JobFolder", "hidden_folder", "in_temp", "joined", "made_for", "remove_left"]

_IN_USE = "in_use"
_MARK = "made_by_first"  # tells the folder that all can see from one of its name elsewhere
_NOTE = "hidden-"  # beginning of the names of notes, each of which has the path of one folder
_HIDDEN = ".mpistrat-"
_OLD_S = 24 * 3600.0
"""Younger folders are left alone: some file systems have locks that other machines do not see."""


def _in_cache(kind: str, nonce: str) -> Path:
    """Return the path of a job's folder in the user's cache folder. **Local.**"""
    return config.cache_folder() / kind / nonce


def in_temp(kind: str, nonce: str) -> Path:
    """Return the path of a job's folder in this machine's temporary folder. **Local.**"""
    return Path(tempfile.gettempdir(), f"mpistrat-{kind}-{nonce}")


class JobFolder:
    """A folder that this process and others of its job use until they end.

    Parameters
    ----------
    path
        Where it is; made if it is not there. Only this user can look into it.
    is_common
        Whether it is the folder of the job's first rank, not another machine's of this name.

    Raises
    ------
    OSError
        It cannot be made or written to, or belongs to another user.

    Notes
    -----
    **Local.**
    """

    def __init__(self, path: Path, is_common: bool = False) -> None:
        self.path, self.is_common = path, is_common
        self._owner = os.getpid()
        self._join()

    def _join(self) -> None:
        missing = [one for one in (self.path, *self.path.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir(mode=0o700, exist_ok=True)
        if not _is_own_folder(self.path):
            raise PermissionError(f"{self.path} is not a folder of this user")
        self._in_use = (self.path / _IN_USE).open("a+")  # closed by `leave`
        try:
            try_to_share(self._in_use)
        except OSError:
            pass  # without locks, folders that jobs leave are removed by their age

    def ensure(self) -> None:
        """Make the folder again if it was removed. **Local.**"""
        if not self.path.is_dir():
            self._in_use.close()
            self._join()

    def leave(self) -> None:
        """Remove the folder if no other process uses it. Idempotent. **Local.**"""
        if os.getpid() != self._owner or self._in_use.closed:
            return  # in a child, which has inherited the lock, it would take the parent's
        with self._in_use:
            try:
                is_last = try_to_lock(self._in_use, 0.0, 0.0)
            except OSError:
                is_last = False
            if is_last:
                shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def inside(self) -> Iterator[Path]:
        """Make a new folder in this one, and remove it after the block. **Local.**"""
        self.ensure()
        with _made(self.path / secrets.token_hex(6)) as made:
            yield made

    @contextmanager
    def hidden_in(self, parent: Path) -> Iterator[Path]:
        """Make a hidden folder elsewhere, and note it here so that a later job can remove it.

        Else as `hidden_folder`.
        """
        name = secrets.token_hex(6)
        self.ensure()
        note = self.path / f"{_NOTE}{name}"
        # Before the folder: a kill in between leaves a spare note, not a folder without one.
        note.write_text(str(parent / f"{_HIDDEN}{name}"))
        try:
            with hidden_folder(parent, name) as made:
                yield made
        finally:
            note.unlink(missing_ok=True)


@contextmanager
def hidden_folder(parent: Path, name: str = "") -> Iterator[Path]:
    """Make a new hidden folder in `parent`, and remove it after the block. **Local.**"""
    with _made(parent / f"{_HIDDEN}{name or secrets.token_hex(6)}") as made:
        yield made


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def made_for(kind: str, nonce: str) -> JobFolder | None:
    """Make a job's folder in the cache folder, or with the temporary files. **Local.**

    None if both cannot be written to. The other ranks are to be told its path.
    """
    for path in (_in_cache(kind, nonce), in_temp(kind, nonce)):
        try:
            folder = JobFolder(path, is_common=True)
            (path / _MARK).touch()
        except OSError:
            continue
        return folder
    return None


def joined(kind: str, nonce: str, path: Path) -> JobFolder | None:
    """Open the folder that another rank of the job has made. **Local.**

    A rank that does not see it, or may not write there, has one of that nonce with the temporary
    files of its machine; None if it cannot have that either.
    """
    own = in_temp(kind, nonce)
    for place, is_common in ((path, (path / _MARK).exists()), (own, False)):
        if is_common or place == own:
            with contextlib.suppress(OSError):  # it may not write there
                return JobFolder(place, is_common)
    return None


def remove_left(kind: str) -> None:
    """Remove the folders of this user's jobs that were killed a day ago or more. **Local.**"""
    cached, temporary = _in_cache(kind, "*"), in_temp(kind, "*")
    for found in (*cached.parent.glob("*"), *temporary.parent.glob(temporary.name)):
        with contextlib.suppress(OSError):  # another job removes it, too
            if _is_own_folder(found) and time.time() - found.stat().st_mtime > _OLD_S:
                _remove_unless_in_use(found)


def _remove_unless_in_use(folder: Path) -> None:
    with (folder / _IN_USE).open("a+") as file:
        try:
            is_in_use = not try_to_lock(file, 0.0, 0.0)
        except OSError:
            is_in_use = False  # there are no locks here, and it is old
        if is_in_use:
            return
        for note in folder.glob(f"{_NOTE}*"):
            hidden = Path(note.read_text())
            # Only a folder of the note's own name: a damaged note must not remove anything else.
            if hidden.name == _HIDDEN + note.name[len(_NOTE) :] and _is_own_folder(hidden):
                shutil.rmtree(hidden, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _is_own_folder(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
