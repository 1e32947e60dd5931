"""Check that the interfaces that the site's file names are on every node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mpistrat.doctor.check import Check, Verdict, failure
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "judge"]

_CLASS = Path("/sys/class/net")


def _measure(_: Here) -> frozenset[str]:
    return frozenset(folder.name for folder in _CLASS.glob("*"))


def judge(facts: Mapping[int, frozenset[str]], job: Job) -> Verdict:
    """Find nodes without one of the interfaces."""
    site = site_of(job)
    named = site.network.interfaces
    if named is None:
        raise NotHere(f"the file of {site.name} names no interfaces")
    if job.launcher.kind == "alone":
        raise NotHere("not on a compute node")
    lacking = {r: set(named.value) - names for r, names in facts.items()}
    off = [rank for rank, names in lacking.items() if names]
    value = ", ".join(named.value)
    if not off:
        return Verdict(f"{value} on every node")
    missing = ", ".join(sorted(lacking[off[0]]))
    return Verdict(
        f"{value}: not on every node",
        problems=(
            failure(
                f"no {missing} on {job.who(off)}, which has {', '.join(sorted(facts[off[0]]))}",
                f"{value}, as the site's file says ({site.source_of(named)})",
                "is this a compute node of that site? If so, correct the file",
            ),
        ),
    )


CHECK = Check(
    name="site.interfaces",
    title="interfaces",
    source="the site's file, [network]",
    measure=_measure,
    judge=judge,
)
