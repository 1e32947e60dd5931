"""Choose a temporary folder on a target's file system, for files that are renamed when written.

A file that is renamed keeps the group, the access list and the striping that it got where it was
made. So a place is on the file system of the target's folder, and new files have there what they
would have in that folder; the folder itself, by a hidden name, is the last choice.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from mpistrat.system.files.job_folder import JobFolder, hidden_folder, in_temp

__all__ = ["Staging"]

_Inherited: TypeAlias = tuple[int, int, tuple[bytes, ...]]
_Place: TypeAlias = Callable[[], AbstractContextManager[Path]]

_ATTRIBUTES = ("system.posix_acl_default", "lustre.lov")
"""Attributes that new files inherit from their folder: access list, striping over servers."""


class Staging:
    """Temporary folders in which the ranks of a job write files before they are renamed.

    Parameters
    ----------
    kind, nonce
        As of :func:`mpistrat.system.files.job_folder.in_temp`.
    folder
        The job's folder; None if it has none.

    Notes
    -----
    **Local**, all of it.
    """

    def __init__(self, kind: str, nonce: str, folder: JobFolder | None) -> None:
        self.nonce, self.folder = nonce, folder
        self._temporary = in_temp(kind, nonce)
        self._made: list[JobFolder] = [folder] if folder else []

    @property
    def path(self) -> Path | None:
        """Where the job's folder is."""
        return self.folder.path if self.folder else None

    def leave(self) -> None:
        """Remove the job's folders if no other rank uses them; called at exit."""
        for folder in self._made:
            folder.leave()

    @contextmanager
    def place_for(self, target: Path) -> Iterator[Path]:
        """Make a new folder to write in what will be renamed to `target`, for a block's length.

        Raises
        ------
        OSError
            It can be made nowhere, not even in the target's folder.
        """
        with ExitStack() as stack:
            yield self._enter_first(self._places(target), stack)

    def _enter_first(self, places: list[_Place], stack: ExitStack) -> Path:
        first, *others = places
        try:
            return stack.enter_context(first())
        except OSError:  # such as a folder that this user may not write to
            if not others:
                raise
        return self._enter_first(others, stack)

    def _places(self, target: Path) -> list[_Place]:
        """Return the candidate folders, the best first."""
        folder = _existing(target.parent)
        wanted = _inherited(folder)
        found: list[_Place] = []
        if self.folder and _inherited(_existing(self.folder.path)) == wanted:
            found.append(self.folder.inside)
        if _inherited(self._temporary.parent) == wanted:
            found.append(self._in_temp)
        ancestor = _topmost_own(folder)
        if ancestor is not None and _inherited(ancestor) == wanted:
            found.append(lambda: self._hidden_in(ancestor))
        return [*found, lambda: self._hidden_in(folder)]

    def _in_temp(self) -> AbstractContextManager[Path]:
        made = next((one for one in self._made if one.path == self._temporary), None)
        if made is None:
            made = JobFolder(self._temporary)
            self._made.append(made)
        return made.inside()

    def _hidden_in(self, parent: Path) -> AbstractContextManager[Path]:
        return self.folder.hidden_in(parent) if self.folder else hidden_folder(parent)

    def move(self, file: Path, target: Path) -> None:
        """Rename a file atomically, also where it has to be copied between file systems.

        That is so between the parts of a file system that has quotas for each: it refuses to
        rename (EXDEV).
        """
        try:
            os.replace(file, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with self._hidden_in(target.parent) as beside:
                copy = beside / target.name
                shutil.copyfile(file, copy)
                os.replace(copy, target)


def _existing(folder: Path) -> Path:
    """Return the folder, or its closest ancestor that exists."""
    return next((one for one in (folder, *folder.parents) if one.is_dir()), folder)


def _inherited(folder: Path) -> _Inherited:
    """Return the attributes that new files inherit from a folder: file system, group, others."""
    status = folder.stat()
    # Without the bit new files get the process's group, in whichever folder.
    group = status.st_gid if status.st_mode & stat.S_ISGID else -1
    return status.st_dev, group, tuple(_attribute(folder, name) for name in _ATTRIBUTES)


def _attribute(folder: Path, name: str) -> bytes:
    try:
        return os.getxattr(folder, name)
    except (OSError, AttributeError):  # it has none, or this system has no such thing
        return b""


def _topmost_own(folder: Path) -> Path | None:
    """Return the topmost ancestor that this user owns and that is on the same file system."""
    found = None
    device = folder.stat().st_dev
    for one in folder.parents:
        status = one.stat()
        if status.st_dev != device:
            break
        is_roots = os.geteuid() == 0 and os.path.ismount(one)  # a mounted root, not this user's
        if status.st_uid == os.geteuid() and not is_roots:
            found = one
    return found
