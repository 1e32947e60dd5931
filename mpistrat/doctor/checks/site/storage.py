"""Check that the site's folders for data and temporary files are there, of the kind it says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, Where, warning
from mpistrat.doctor.files.file_systems import MEMORY, file_system
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Place", "judge"]


@dataclass(frozen=True)
class Place:
    """A folder of the site's file: its key there, its path here, and what is there."""

    key: str
    path: str
    is_there: bool
    kind: str


def _measure(here: Here) -> tuple[Place, ...]:
    if here.site is None:
        raise NotHere("no site is named (--site NAME)")
    storage = here.site.storage
    named = {"scratch": storage.scratch, "node_local": storage.node_local}
    # Only on a compute node the folders of nodes are there.
    if here.launcher.kind == "alone" and not here.launcher.allocated:
        named.pop("node_local")
    found = []
    for key, folder in named.items():
        if folder is not None:
            path = os.path.expandvars(folder.value)
            found.append(Place(key, path, os.access(path, os.W_OK), file_system(path)))
    return tuple(found)


def judge(facts: Mapping[int, tuple[Place, ...]], job: Job) -> Verdict:
    """Find folders that are not there, and a folder in memory that the file calls a disk."""
    site, places = site_of(job), facts[min(facts)]
    if not places:
        raise NotHere(f"the file of {site.name} names no folders")
    problems: list[Problem] = []
    corrections: dict[str, object] = {}
    for place in places:
        needs = site.storage.node_local.needs if site.storage.node_local else None
        if not place.is_there:
            hint = f"; it needs {needs}" if needs and place.key == "node_local" else ""
            problems.append(
                warning(
                    f"{place.path} is not there, or cannot be written"
                    + (", since that variable is not set" if "$" in place.path else ""),
                    f"the folder that the site's file names as storage.{place.key}",
                    f"check the path{hint}",
                )
            )
        elif place.key == "node_local" and site.storage.node_local is not None:
            kind = "ram" if place.kind in MEMORY else "disk"
            if kind != site.storage.node_local.kind:
                corrections["storage.node_local.kind"] = kind
                problems.append(
                    warning(
                        f"{place.path} is on {place.kind}",
                        f"{site.storage.node_local.kind}, as the site's file says",
                        "what is written there counts against the job's memory"
                        if kind == "ram"
                        else "correct the file: mpistrat doctor --write-site",
                    )
                )
    return Verdict(
        ", ".join(place.path for place in places),
        problems=tuple(problems),
        corrections=corrections,
    )


CHECK = Check(
    name="site.storage",
    title="storage",
    source="the site's file, [storage]",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
