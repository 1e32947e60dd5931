"""Check for versions of Slurm and hwloc that are known to fail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.cluster.mpi_start.timed_start import loaded_libraries
from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value

__all__ = ["CHECK", "Versions", "judge"]

_BAD_SLURM = ("20.11.0", "20.11.1", "20.11.2")
# libtool's numbers of the releases 2.5.0, 2.6.0 and 2.7.0; 2.7.1 is 15.5.3.
_BAD_HWLOC = {"15.5.0": "2.5.0", "15.5.1": "2.6.0", "15.5.2": "2.7.0"}


@dataclass(frozen=True)
class Versions:
    """The hwloc libraries that a rank has loaded: the ends of their files' names."""

    hwloc: tuple[str, ...]


def _measure(_: Here) -> Versions:
    files = [path.resolve().name for path in loaded_libraries(["libhwloc"])]
    found = [re.search(r"\.so\.([\d.]+)$", name) for name in files]
    return Versions(tuple(sorted({match[1] for match in found if match})))


def judge(facts: Mapping[int, Versions], job: Job) -> Verdict:
    """Compare Slurm's and hwloc's versions with those that are known to fail."""
    problems: list[Problem] = []
    if job.slurm in _BAD_SLURM:
        problems.append(
            warning(
                f"Slurm {job.slurm}",
                "20.11.3 or later: steps of 20.11.0 to 20.11.2 do not get their CPUs",
                "start with mpirun, and ask the site for an update",
            )
        )
    for versions, ranks in by_value(facts).items():
        bad = [_BAD_HWLOC[number] for number in versions.hwloc if number in _BAD_HWLOC]
        if bad:
            problems.append(
                failure(
                    f"hwloc {', '.join(bad)} is loaded by {job.who(ranks)}",
                    "2.7.1 or later: those before crash in programs that change their environment",
                    "load another module of hwloc or of the MPI library",
                )
            )
    return Verdict(_value(facts, job), problems=tuple(problems))


def _value(facts: Mapping[int, Versions], job: Job) -> str:
    parts = [f"Slurm {job.slurm}" if job.slurm else "no Slurm"]
    hwloc = sorted({number for versions in facts.values() for number in versions.hwloc})
    return ", ".join([*parts, f"libhwloc.so.{hwloc[0]}" if hwloc else "no hwloc of its own"])


CHECK = Check(
    name="launch.known_bad_versions",
    title="known bad versions",
    source="Open MPI's page on Slurm; Slurm's MPI guide (hwloc)",
    measure=_measure,
    judge=judge,
)
