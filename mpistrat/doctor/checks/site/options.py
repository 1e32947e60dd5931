"""Check the job's options against those that the site forbids and requires."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, Where, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job import slurm
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "JobOptions", "directives", "judge"]

# What Slurm keeps of options that may have stood on sbatch's command line.
_RECORDED = {
    "TresPerNode": "--gres",
    "TresPerTask": "--gpus-per-task",
    "TresPerJob": "--gpus",
    "ReqNodeList": "--nodelist",
    "Reservation": "--reservation",
}
_VARIABLES = {"SLURM_MEM_PER_NODE": "--mem", "SLURM_MEM_PER_CPU": "--mem-per-cpu"}
_NONE = ("", "(null)", "N/A")


@dataclass(frozen=True)
class JobOptions:
    """The options of this job: directives of its script, and what the scheduler recorded."""

    script: tuple[str, ...]
    recorded: tuple[str, ...] = ()


def _measure(here: Here) -> JobOptions:
    if here.site is None:
        raise NotHere("no site is named (--site NAME)")
    record, script = slurm.job_record(), directives(slurm.batch_script())
    recorded = [flag for name, flag in _RECORDED.items() if record.get(name, "") not in _NONE]
    # Slurm records --gpus-per-node and --gres alike; only a script tells which it was.
    if any(option.startswith("--gpus-per-node") for option in script):
        recorded = [flag for flag in recorded if flag != "--gres"]
    return JobOptions(tuple(script), tuple(recorded))


def directives(script: str) -> list[str]:
    """Return the options of the ``#SBATCH`` and ``#PBS`` lines of a script, one by one."""
    options: list[str] = []
    for line in re.findall(r"^#(?:SBATCH|PBS)[ \t]+(.*)$", script, re.MULTILINE):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote without its end: Slurm would refuse it, too
            words = line.split()
        for word in words:
            if word.startswith("-") or not options:
                options.append(word)
            else:
                options[-1] += f" {word}"
    return options


def judge(facts: Mapping[int, JobOptions], job: Job) -> Verdict:
    """Find options that the site's scheduler refuses, and missing ones that it asks for."""
    site, own = site_of(job), facts[min(facts)]
    problems = [*_forbidden(own, job), *_missing(own, job)]
    forbidden = ", ".join(flag.value for flag in site.batch.forbidden) or "none"
    return Verdict(
        f"{len(own.script)} directives; {site.name} forbids {forbidden}", problems=tuple(problems)
    )


def _forbidden(own: JobOptions, job: Job) -> Iterator[Problem]:
    site = site_of(job)
    named = {flag.value for option in own.script if (flag := site.forbids(option))}
    for option in (*own.script, *own.recorded):
        flag = site.forbids(option)
        if flag is None or (option in own.recorded and flag.value in named):
            continue
        yield failure(
            f"the job has {option}",
            f"no {flag.value} at {site.title}"
            + (f": {flag.reason}" if flag.reason else f" ({site.source_of(flag)})"),
            "the site's scheduler refuses it, or will: remove it",
            f"mpistrat slurm render --site {site.name} ...",
        )


def _missing(own: JobOptions, job: Job) -> Iterator[Problem]:
    from mpistrat.sites.flags import option_name

    site = site_of(job)
    if not own.script:
        return
    given = {option_name(option, site.scheduler) for option in own.script}
    for flag in site.batch.required:
        if option_name(flag.value, site.scheduler) not in given:
            yield warning(
                f"the job's script has no {flag.value}",
                f"{flag.value}, which {site.title} requires",
                "add it to the script",
                f"#{'PBS' if site.scheduler == 'pbs' else 'SBATCH'} {flag.value} ...",
            )


CHECK = Check(
    name="site.options",
    title="options of the job",
    source="the site's file, [batch]",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
