"""Check that Python's environment is not on a file system that is slow for many small files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, Where, failure, warning
from mpistrat.doctor.files.file_systems import NETWORK, file_system
from mpistrat.doctor.here import Here
from mpistrat.doctor.imports import probe
from mpistrat.doctor.job.job import Job

__all__ = ["CHECK", "Environment", "judge"]

_SLOW_S = 3.0
_FEW_NODES = 4


@dataclass(frozen=True)
class Environment:
    """The environment as a node sees it.

    Attributes
    ----------
    prefix, kind
        Its folder, and the file system of that.
    import_s
        Seconds that a new process takes to import numpy.
    failed
        The modules that it could not import, and why.
    """

    prefix: str
    kind: str
    import_s: float
    failed: tuple[str, ...] = ()


def _measure(here: Here) -> Environment:
    imports = probe(("numpy", *here.options.imports), here.start_mask, here.options.measure_s)
    failed = tuple(f"import {done.name}: {done.error}" for done in imports if done.error)
    seconds = sum(done.duration_s for done in imports if done.name == "numpy")
    return Environment(sys.prefix, file_system(sys.prefix), round(seconds, 2), failed)


def judge(facts: Mapping[int, Environment], job: Job) -> Verdict:
    """Find nodes where the import is slow, and file systems that will be with more nodes."""
    slowest = max(facts.values(), key=lambda environment: environment.import_s)
    first = facts[min(facts)]
    value = f"{first.prefix} ({first.kind or 'unknown'}), import numpy {slowest.import_s:.1f} s"
    problems = [
        failure(
            f"{'; '.join(one.failed)} (the environment of {job.who([rank])} is {one.prefix})",
            "modules that can be imported",
            "install them into this environment, or start another Python",
        )
        for rank, one in facts.items()
        if one.failed
    ]
    is_shared = slowest.kind in NETWORK and len(job.nodes) > _FEW_NODES
    if slowest.import_s >= _SLOW_S or is_shared:
        rank = next(rank for rank, one in facts.items() if one is slowest)
        problems.append(_slow(slowest, job.who([rank]), job))
    return Verdict(value, problems=tuple(problems))


def _slow(environment: Environment, who: str, job: Job) -> Problem:
    where = f"{environment.prefix} is on {environment.kind or 'an unknown file system'}"
    return warning(
        f"{where}; import numpy took {environment.import_s:.1f} s for {who}",
        f"less than {_SLOW_S:g} s, on a disk or in memory of each node",
        "thousands of small files are slow on a shared file system: unpack the environment on each"
        " node when the job starts, or take a container",
        "mpistrat slurm render --stage-environment ..." if job.slurm else "",
    )


CHECK = Check(
    name="files.environment",
    title="Python environment",
    source="OLCF, sbcast_conda; OLCF, cupy.rst",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_OF_NODE,
)
