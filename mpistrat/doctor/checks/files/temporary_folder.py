"""Check that the folder of temporary files can be written, and that its name is short."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.files.file_systems import MEMORY, file_system
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value

__all__ = ["CHECK", "Folder", "judge"]

# Names of sockets have 107 characters at most, and MPI, PMIx and multiprocessing append theirs.
_LONGEST = 70
_NEED = 64 << 20


@dataclass(frozen=True)
class Folder:
    """The temporary folder of one rank.

    Attributes
    ----------
    path, variable
        TMPDIR, or /tmp where that is not set; the name of the variable in this case "".
    error
        Why no file can be written there, or "".
    kind
        Its file system.
    free
        Bytes that are free, in steps of a GiB above one.
    """

    path: str
    variable: str
    error: str = ""
    kind: str = ""
    free: int = 1 << 30


def _measure(here: Here) -> Folder:
    set_one = here.environment.get("TMPDIR", "")
    path = set_one or "/tmp"
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"mpistrat doctor")
        found = os.statvfs(path)
    except OSError as error:
        return Folder(path, "TMPDIR" if set_one else "", error.strerror or str(error))
    free = found.f_bavail * found.f_frsize
    # Ranks measure at different times: numbers that differ by little are the same.
    free = free >> 30 << 30 if free >= 1 << 30 else free >> 20 << 20
    return Folder(path, "TMPDIR" if set_one else "", "", file_system(path), free)


def judge(facts: Mapping[int, Folder], job: Job) -> Verdict:
    """Find ranks whose folder cannot be written, is full, or has a name that is too long."""
    problems: list[Problem] = []
    for folder, ranks in by_value(facts).items():
        problems += _problems(folder, job.who(ranks))
    first = facts[min(facts)]
    memory = ", in memory: it counts against the job's" if first.kind in MEMORY else ""
    return Verdict(f"{first.path} ({first.kind or 'unknown'}{memory})", problems=tuple(problems))


def _problems(folder: Folder, who: str) -> Iterator[Problem]:
    name = f"{folder.variable}={folder.path}" if folder.variable else folder.path
    if folder.error:
        yield failure(
            f"{name} cannot be written by {who}: {folder.error}",
            "a folder that each node has, and that can be written",
            "MPI and TensorFlow need it to start",
            "export TMPDIR=/tmp",
        )
    elif folder.free < _NEED:
        yield warning(
            f"{name} has {folder.free >> 20} MiB free for {who}",
            f"{_NEED >> 20} MiB at least",
            "remove old files there, or take another folder",
        )
    if len(folder.path) > _LONGEST:
        yield failure(
            f"{name} has {len(folder.path)} characters for {who}",
            f"{_LONGEST} at most: names of sockets may have 107, with what programs append",
            "programs end with 'AF_UNIX path too long' there",
            "export TMPDIR=/tmp",
        )


CHECK = Check(
    name="files.temporary_folder",
    title="TMPDIR",
    source="ALCF, Aurora known issues (AF_UNIX path too long)",
    measure=_measure,
    judge=judge,
)
