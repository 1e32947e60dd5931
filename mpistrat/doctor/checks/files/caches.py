"""Check that the folders of caches can be written by each rank."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpistrat import config
from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.files.file_systems import NETWORK, file_system
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value

__all__ = ["CHECK", "Cache", "judge"]

_VARIABLES = (
    *("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "TRITON_HOME", "TRITON_CACHE_DIR"),
    *("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "TF_TEST_TMPDIR", "MPLCONFIGDIR"),
    *("NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TF_XLA_CACHE_DIR"),
)
_MANY_RANKS = 64


@dataclass(frozen=True)
class Cache:
    """A folder for files that programs make for themselves.

    Attributes
    ----------
    variable, path
        What names it, and the folder.
    error
        Why it cannot be written, or "".
    kind
        Its file system.
    """

    variable: str
    path: str
    error: str = ""
    kind: str = ""


def _measure(here: Here) -> tuple[Cache, ...]:
    set_ones = [
        (name, here.environment[name]) for name in _VARIABLES if here.environment.get(name)
    ]
    own = "MPISTRAT_CACHE" if here.environment.get("MPISTRAT_CACHE") else "cache folder"
    try:
        first = _cache((own, str(config.cache_folder())))
    except RuntimeError:  # a user of a container whom it does not know
        first = Cache(own, "~/.cache/mpistrat", "this user has no home folder")
    return (first, *map(_cache, set_ones))


def _cache(named: tuple[str, str]) -> Cache:
    name, path = named
    return Cache(name, path, _error(path), file_system(path))


def _error(path: str) -> str:
    """Return why no file can be made in a folder, or in the one above it that exists."""
    folder = Path(path).absolute()
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def judge(facts: Mapping[int, tuple[Cache, ...]], job: Job) -> Verdict:
    """Find caches that cannot be written, and shared ones that many ranks would write."""
    problems: list[Problem] = []
    for name in dict.fromkeys(cache.variable for caches in facts.values() for cache in caches):
        own = {r: c for r, caches in facts.items() for c in caches if c.variable == name}
        for cache, ranks in by_value(own).items():
            if found := _problem(cache, job.who(ranks), len(ranks)):
                problems.append(found)
    first = facts[min(facts)][0]
    return Verdict(f"{first.path} ({first.kind or 'unknown'})", problems=tuple(problems))


def _problem(cache: Cache, who: str, count: int) -> Problem | None:
    name = (
        f"{cache.variable}={cache.path}"
        if cache.variable.isupper()
        else f"{cache.variable} {cache.path}"
    )
    variable = cache.variable if cache.variable.isupper() else "MPISTRAT_CACHE"
    line = f"export {variable}=${{TMPDIR:-/tmp}}/$USER-cache"
    if cache.error:
        return failure(
            f"{name} cannot be written by {who}: {cache.error}",
            "a folder that compute nodes can write",
            "programs compile the same kernels in each run, or end",
            line,
        )
    if cache.kind in NETWORK and count >= _MANY_RANKS:
        return warning(
            f"{name} is on {cache.kind}, and {count} ranks write it",
            "a folder of each node",
            "many ranks that lock and write small files of a shared file system wait for it",
            line,
        )
    return None


CHECK = Check(
    name="files.caches",
    title="caches",
    source="OLCF, pytorch_frontier.rst; CSCS, ml/pytorch.md",
    measure=_measure,
    judge=judge,
)
