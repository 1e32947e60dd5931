"""Compile sources on this machine when they are first used, and cache the result.

A cached file is loaded into the process later, so it must be complete and this user's own: it is
written under another name and then renamed, it ends with the digest of all bytes before, and a
file or a folder that another user owns or could have written to is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from mpistrat import config
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.files.file_locks import try_to_lock
from mpistrat.system.log import get_logger, warn_alone
from mpistrat.system.processes.process_group import started_group

__all__ = ["compiler", "own_folder", "shared_object"]

_INCLUDES = re.compile(rb'^#include "([^"/]+)"', re.MULTILINE)
_COMPILERS = ("g++", "c++", "clang++")
_DIGEST_BYTES = hashlib.sha256().digest_size
_MOST_LINES = 8  # of what a compiler says
_NAP_S = 0.1


def shared_object(source: Path, flags: Sequence[str], made_for: str) -> Path:
    """Return the shared object of a C++ source, compiled now or by an earlier process. **Local.**

    Of several processes that want the same, one compiles and the others wait for it.

    Parameters
    ----------
    source
        The C++ file, and the headers of its folder that it includes.
    flags
        What the compiler is told besides; libraries last.
    made_for
        Text that names all else that the result depends on, such as a library's version.

    Returns
    -------
    Path
        An absolute path in the cache folder (:func:`mpistrat.config.cache_folder`).

    Raises
    ------
    BackendUnavailableError
        There is no compiler, it failed or took too long, or the cache folder cannot be trusted.
    """
    try:
        folder = own_folder(config.cache_folder())
        parts = [made_for, *flags, *_digests(source)]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        target = folder / f"{source.stem}-{digest[:32]}.so"
        if not _is_sound(target):
            with _locked(target.with_suffix(".lock")):
                # Again: another process may have built it while this one waited for the lock.
                if not _is_sound(target):
                    _announce(source, folder)
                    _build(source, flags, target)
    except OSError as error:
        raise BackendUnavailableError(f"cannot compile {source.name}: {error}") from error
    return target


def compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX``, or the first usual one on the PATH.

    Raises
    ------
    BackendUnavailableError
        There is none.
    """
    chosen = _chosen()
    for command in [chosen] if chosen else [[name] for name in _COMPILERS]:
        if shutil.which(command[0]):
            return command
    names = f"CXX={chosen[0]!r}" if chosen else f"none of {', '.join(_COMPILERS)}"
    raise BackendUnavailableError(
        f"found no C++ compiler: {names} is on the PATH; install one or set CXX"
    )


def _chosen() -> list[str]:
    text = os.environ.get("CXX", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BackendUnavailableError(
            f"CXX={text!r} is no command of a shell: {error}; set CXX to a compiler, and options"
        ) from error


def _digests(source: Path) -> list[str]:
    """Return the digest of a source, and of each header of its folder that it includes."""
    text = source.read_bytes()
    names = (name.decode() for name in _INCLUDES.findall(text))
    # A name that is not there is a system header's, as vendors quote theirs too.
    headers = [header for name in names if (header := source.parent / name).is_file()]
    below = [digest for header in headers for digest in _digests(header)]
    return [hashlib.sha256(text).hexdigest(), *below]


def own_folder(folder: Path) -> Path:
    """Make a folder unless it is there, and return it if only this user can write to it.

    Raises
    ------
    BackendUnavailableError
        It is another user's, or others may write to it: what it holds could be theirs.
    OSError
        It cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(folder.stat()):
        raise BackendUnavailableError(
            f"the cache folder {folder} belongs to another user or others may write to it;"
            " chmod 700 it, or set MPISTRAT_CACHE to a folder of your own"
        )
    return folder


def _is_ours(status: os.stat_result) -> bool:
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not others_write


def _is_sound(file: Path) -> bool:
    """Tell whether `file` exists, is this user's own, and ends with its digest."""
    try:
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
            return False
        content = file.read_bytes()
    except FileNotFoundError:
        return False
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return hashlib.sha256(body).digest() == digest


def _announce(source: Path, folder: Path) -> None:
    """Log that a compilation delays the program; only the process that compiles does so."""
    command = shlex.join(compiler())
    warn_alone(
        get_logger(__name__),
        f"compiling {source.name} with {command}, once on this machine, which takes some 15 s;"
        f" it is kept in {folder}",
    )


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keep other processes of this user from compiling the same source at the same time.

    It spares work and protects nothing, so a file system without locks is no reason to give up.
    """
    with file.open("wb") as lock:
        with contextlib.suppress(OSError):  # no locks here
            try_to_lock(lock, config.compile_timeout_s(), _NAP_S)
        yield


def _build(source: Path, flags: Sequence[str], target: Path) -> None:
    command = compiler()
    # In the same folder, so that the rename stays within one file system.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
        built = Path(folder) / target.name
        arguments = ["-shared", "-fPIC", str(source), "-o", str(built), *flags]
        _run([*command, *arguments], config.compile_timeout_s())
        digest = hashlib.sha256(built.read_bytes()).digest()
        # The loader goes by the ELF headers, and ignores what follows the last section.
        with built.open("ab") as file:
            file.write(digest)
        # Whatever the umask is: a file that others may write to is not sound.
        built.chmod(0o700)
        built.replace(target)


def _run(command: Sequence[str], timeout_s: float) -> None:
    try:
        status, said = _output(command, timeout_s)
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailableError(
            f"{command[0]} took longer than {timeout_s:g} s (MPISTRAT_COMPILE_TIMEOUT)"
        ) from error
    if status != 0:
        lines = "\n".join(said.strip().splitlines()[-_MOST_LINES:])
        raise BackendUnavailableError(f"{command[0]} exited with {status}:\n{lines}")


def _output(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Run a compiler and return its output; at a timeout, also end its child processes."""
    # g++ does the work in child processes.
    with started_group(command) as process:
        said, _ = process.communicate(timeout=timeout_s)
    return process.returncode, said.decode(errors="replace")
