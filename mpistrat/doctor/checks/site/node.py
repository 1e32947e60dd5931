"""Check the node's sockets, cores, memory and GPUs against the site's file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mpistrat.doctor.check import Check, Problem, Verdict, Where, warning
from mpistrat.doctor.gpus.driver import installed
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere
from mpistrat.system.number_ranges import read_ranges

__all__ = ["CHECK", "Node", "judge"]

_CPUS = Path("/sys/devices/system/cpu")
_GIB, _GB = 2**30, 10**9
_MEMORY_OFF = 0.1  # the kernel keeps some for itself


@dataclass(frozen=True)
class Node:
    """What a compute node has; None where it cannot be told."""

    sockets: int | None
    cores: int | None
    threads_per_core: int | None
    memory_gb: int | None
    gpus: int | None


def _measure(here: Here) -> Node:
    if here.site is None:
        raise NotHere("no site is named (--site NAME)")
    if here.launcher.kind == "alone" and not here.launcher.allocated:
        raise NotHere("not on a compute node")
    try:
        online = read_ranges((_CPUS / "online").read_text())
        places = {_place(cpu) for cpu in online}
    except OSError as error:  # some containers have no /sys
        raise NotHere(f"{error.filename} cannot be read") from error
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Node(
        sockets=len({socket for socket, _ in places}),
        cores=len(places),
        threads_per_core=len(online) // len(places),
        memory_gb=round(memory / _GB),
        gpus=installed() or None,
    )


def _place(cpu: int) -> tuple[str, str]:
    """Return the socket and the core of a logical CPU; those of one core are alike in both."""
    folder = _CPUS / f"cpu{cpu}" / "topology"
    core = folder / "core_cpus_list"
    if not core.exists():  # Linux before 5.3 has it by this name only
        core = folder / "thread_siblings_list"
    return (folder / "physical_package_id").read_text().strip(), core.read_text().strip()


def judge(facts: Mapping[int, Node], job: Job) -> Verdict:
    """Compare each number that the file states with the machine's."""
    site, node = site_of(job), facts[min(facts)]
    problems: list[Problem] = []
    corrections: dict[str, object] = {}
    for name, live in asdict(node).items():
        stated = getattr(site.node, name)
        if live is None or (stated is not None and _agree(name, stated.value, live)):
            continue
        corrections[f"node.{name}"] = live
        if stated is not None:
            problems.append(
                warning(
                    f"{job.hosts[0]} has {name} = {live}",
                    f"{stated.value}, as the site's file says ({site.source_of(stated)})",
                    "if this is the kind of node that the file is about, correct it:"
                    " mpistrat doctor --write-site",
                )
            )
    shown = f"{node.cores} cores, {node.memory_gb} GB, {node.gpus or 'no'} GPUs"
    return Verdict(shown, problems=tuple(problems), corrections=corrections)


def _agree(name: str, stated: int, live: int) -> bool:
    if name != "memory_gb":
        return stated == live
    # Centres count in GB or in GiB.
    return any(abs(live * unit - stated) <= _MEMORY_OFF * stated for unit in (1, _GB / _GIB))


CHECK = Check(
    name="site.node",
    title="node",
    source="the site's file, [node]",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
