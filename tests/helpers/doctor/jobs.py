"""Jobs to judge recorded facts of, and what a verdict says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpistrat.doctor.check import Check, Status, Verdict
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.launcher import Launcher
from mpistrat.sites.reading import read
from mpistrat.sites.schema import Site

__all__ = ["MPICH", "OPEN_MPI", "faults", "has_fault", "job", "judged", "site"]

MPICH = "MPICH Version: 5.0.2 MPICH Release date: Mon Oct 1 2026 MPICH ABI: 18:2:6"
OPEN_MPI = "Open MPI v5.0.11, package: Open MPI root@host Distribution, ident: 5.0.11"

_SITE = """\
name = "here"
title = "A site of the tests"
scheduler = "slurm"
{top}
[sources]
us = {{ title = "a page", date = 2026-01-01, by = "centre" }}
[launcher]
command = {{ value = "{command}", source = "us" }}
{tables}
"""


def job(hosts: Sequence[str] = ("n0", "n0"), kind: str = "mpirun", **attributes: Any) -> Job:
    """Return a job of a rank for each host, started by a kind of launcher."""
    mpi_type = attributes.pop("mpi_type", "")
    launcher = Launcher(
        kind,  # type: ignore[arg-type]
        size=attributes.pop("announced", len(hosts)),
        variable="PMI_SIZE",
        nodes=len(set(hosts)),
        mpi_type=mpi_type,
        allocated=attributes.pop("allocated", 0),
    )
    return Job(tuple(hosts), launcher, **{"library": MPICH, **attributes})


def site(folder: Path, tables: str = "", command: str = "srun", top: str = "") -> Site:
    """Return a site of a few tables, read from a file as the real ones are."""
    file = folder / "here.toml"
    file.write_text(_SITE.format(top=top, command=command, tables=tables))
    return read(file)


def judged(check: Check[Any], facts: Mapping[int, Any] | Sequence[Any], of: Job) -> Verdict:
    """Return a check's verdict on recorded facts, by rank or in order of the ranks."""
    by_rank = facts if isinstance(facts, Mapping) else dict(enumerate(facts))
    return check.judge(by_rank, of)


def faults(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the status and the text of each problem."""
    return [(problem.status.value, problem.got) for problem in verdict.problems]


def has_fault(verdict: Verdict, status: Status, *words: str) -> bool:
    """Tell whether a problem of that status says these words, and how to mend it."""
    return any(
        problem.status is status
        and all(word in f"{problem.got} {problem.expected} {problem.command}" for word in words)
        and bool(problem.fix)
        for problem in verdict.problems
    )
