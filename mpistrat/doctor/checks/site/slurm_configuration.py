"""Check Slurm's requeueing and partitions against the site's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, Where, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job import slurm
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Configuration", "judge"]

_NAMES = ("JobRequeue", "KillOnBadExit", "KillWait", "MpiDefault", "PreemptMode", "PreemptType")


@dataclass(frozen=True)
class Configuration:
    """Values of ``scontrol show config``, and the partitions with their time limits in minutes."""

    values: tuple[tuple[str, str], ...]
    partitions: tuple[str, ...] = ()


def _measure(here: Here) -> Configuration:
    if here.site is None:
        raise NotHere("no site is named (--site NAME)")
    if here.site.scheduler != "slurm":
        raise NotHere(f"{here.site.name} has {here.site.scheduler.upper()}")
    live = slurm.configuration()
    names = slurm.answer(["sinfo", "--noheader", "--format=%R"]).split()
    return Configuration(
        tuple((name, live[name]) for name in _NAMES if name in live),
        tuple(dict.fromkeys(names)),
    )


def judge(facts: Mapping[int, Configuration], job: Job) -> Verdict:
    """Compare what the file states with the live configuration."""
    site, live = site_of(job), facts[min(facts)]
    values = dict(live.values)
    corrections: dict[str, object] = {}
    requeue = values.get("JobRequeue", "")
    stated = site.signal.requeue
    problems = [*_partitions(live, job)]
    if requeue and (stated is None or stated.value != (requeue == "1")):
        corrections["signal.requeue"] = requeue == "1"
        if stated is not None:
            problems.append(
                warning(
                    f"JobRequeue={requeue} in Slurm's configuration",
                    f"{int(stated.value)}, as the site's file says ({site.source_of(stated)})",
                    "state --requeue or --no-requeue in the job; correct the file:"
                    " mpistrat doctor --write-site",
                )
            )
    shown = ", ".join(f"{name}={value}" for name, value in live.values if value)
    return Verdict(
        f"Slurm {job.slurm}: {shown}", problems=tuple(problems), corrections=corrections
    )


def _partitions(live: Configuration, job: Job) -> Iterator[Problem]:
    site = site_of(job)
    stated = dict.fromkeys(partition.value for partition in site.batch.partitions)
    default = site.batch.default_partition
    gone = [
        name
        for name in [*stated, *([default.value] if default else [])]
        if name not in live.partitions
    ]
    if gone and live.partitions:
        yield warning(
            f"sinfo knows no partition {', '.join(dict.fromkeys(gone))}; it lists"
            f" {', '.join(live.partitions[:8])}",
            "the partitions of the site's file",
            "name one of sinfo's with --partition",
        )


CHECK = Check(
    name="site.slurm_configuration",
    title="Slurm settings",
    source="the site's file, [signal] and [batch]",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
