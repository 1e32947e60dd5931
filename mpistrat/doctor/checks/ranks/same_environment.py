"""Check that all ranks have the same Python, packages, MPI library and settings."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions

import mpistrat
from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value
from mpistrat.doctor.settings import shown, watched

__all__ = ["CHECK", "Software", "judge"]

_MOST_SHOWN = 6


@dataclass(frozen=True)
class Software:
    """The software of one rank.

    Attributes
    ----------
    facts
        Of Python, the MPI library and the drivers, as (name, value).
    packages
        The installed packages, as (name, version).
    settings
        Environment variables that change how programs run, as (name, value or its digest).
    """

    facts: tuple[tuple[str, str], ...]
    packages: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


def _measure(here: Here) -> Software:
    facts = {
        "Python": platform.python_version(),
        "its environment": sys.prefix,
        "mpistrat": mpistrat.__version__,
        "MPI library": here.mpi.library,
        "NVIDIA driver": _driver(),
    }
    # The first of a name is the one that is imported.
    packages: dict[str, str] = {}
    for found in distributions():
        packages.setdefault(str(found.metadata["Name"]).lower(), found.version)
    return Software(
        tuple(facts.items()), tuple(sorted(packages.items())), tuple(watched(here.environment))
    )


def _driver() -> str:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


def judge(facts: Mapping[int, Software], job: Job) -> Verdict:
    """Find the ranks that differ from the others, and in what."""
    problems: list[Problem] = []
    for kind, report in (("facts", failure), ("packages", failure), ("settings", warning)):
        tables = {rank: dict(getattr(software, kind)) for rank, software in facts.items()}
        found = list(_differences(tables, job, hides=kind == "settings"))
        fix = _FIXES[kind]
        problems += [report(got, "the same on all ranks", fix) for got in found[:_MOST_SHOWN]]
    first = dict(facts[min(facts)].facts)
    count = len(facts[min(facts)].packages)
    return Verdict(f"Python {first.get('Python', '')}, {count} packages", problems=tuple(problems))


_FIXES = {
    "facts": "start all ranks with the same Python: by its full path, or by a script that"
    " activates its environment on each node",
    "packages": "install the same versions, or use one environment, shared or staged",
    "settings": "export it before the launcher starts, not in the shell of a rank; mpirun of Open"
    " MPI also needs -x NAME",
}


def _differences(
    tables: Mapping[int, Mapping[str, str]], job: Job, *, hides: bool
) -> Iterator[str]:
    """Yield a text for each name whose values differ between ranks."""
    for name in sorted({name for table in tables.values() for name in table}):
        values = by_value({rank: table.get(name, "") for rank, table in tables.items()})
        if len(values) > 1:
            (usual, _), *others = values.items()
            for value, ranks in others:
                mine, theirs = (
                    shown(name, text) if hides else text or "none" for text in (value, usual)
                )
                yield f"{name} is {mine} on {job.who(ranks)}, {theirs} on the others"


CHECK = Check(
    name="ranks.same_environment",
    title="same software",
    source="NVIDIA/nccl#286 (versions must match)",
    measure=_measure,
    judge=judge,
)
