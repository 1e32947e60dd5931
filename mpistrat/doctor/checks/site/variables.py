"""Check that the site's environment variables are set as its file says."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

from mpistrat.doctor.check import Check, Problem, Verdict, Where, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere
from mpistrat.doctor.settings import shown

__all__ = ["CHECK", "judge"]

Wanted = tuple[tuple[str, str, str], ...]


def _measure(here: Here) -> Wanted:
    """Return the site's variables: the name, the value of the file, and the value here."""
    if here.site is None:
        raise NotHere("no site is named (--site NAME)")
    if here.launcher.kind == "alone":
        raise NotHere("not started by a job script")
    nodes = len(set(here.hosts))
    return tuple(
        (name, os.path.expandvars(wanted.value), here.environment.get(name, ""))
        for name, wanted in sorted(here.site.environment.items())
        if nodes >= (wanted.min_nodes or 1) and _is_comparable(name, wanted.value)
    )


def _is_comparable(name: str, value: str) -> bool:
    """Tell whether a value can be told here: not if it adds to what the variable was before."""
    names = re.findall(r"\$\{?(\w+)", value)
    # Forms such as ${NAME:-default} are the shell's alone.
    return name not in names and not re.search(r"\$\{\w*\W(?<!\})", value)


def judge(facts: Mapping[int, Wanted], job: Job) -> Verdict:
    """Find variables that are not set, or set to another value."""
    site, wanted = site_of(job), facts[min(facts)]
    if not wanted:
        raise NotHere(f"the file of {site.name} sets no variables")
    off = [(name, value, here) for name, value, here in wanted if value != here]
    problems: tuple[Problem, ...] = ()
    if off:
        texts = [f"{name} is {shown(name, here)}" for name, _, here in off]
        reasons = [site.environment[name].reason for name, _, _ in off]
        because = next((f" ({reason})" for reason in reasons if reason), "")
        right = " ".join(
            f"{name}={_for_script(site.environment[name].value, value)}" for name, value, _ in off
        )
        problems = (
            warning(
                "; ".join(texts),
                f"as the file of {site.name} says{because}",
                "set them in the job's script, as mpistrat slurm render does",
                f"export {right}",
            ),
        )
    return Verdict(f"{len(wanted) - len(off)} of {len(wanted)} as in the file", problems=problems)


def _for_script(stated: str, value: str) -> str:
    """Return a value for a script, where the variables in it are those of each job."""
    return f'"{stated}"' if "$" in stated else shlex.quote(value)


CHECK = Check(
    name="site.variables",
    title="variables",
    source="the site's file, [environment]",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
