"""`Job`: the ranks that are examined, their nodes, and how they were started."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mpistrat.doctor.job.launcher import ALONE, Launcher
from mpistrat.doctor.not_here import NotHere
from mpistrat.system.number_ranges import ranges

if TYPE_CHECKING:
    from mpistrat.sites.schema import Site

__all__ = ["Job", "by_value", "site_of"]

V = TypeVar("V")
_MOST_HOSTS = 4


@dataclass(frozen=True)
class Job:
    """The ranks that are examined, as the judgements of checks see them.

    Attributes
    ----------
    hosts
        The node of each rank, by rank.
    launcher
        What started them.
    library
        The version text of the MPI library, "" where there is none.
    slurm
        Version of Slurm on this machine, "" where it has none.
    site
        The site that the machine is compared with.
    program
        The command line without its launcher: ``mpistrat doctor ...``.
    silent
        The ranks that did not answer in time, and their nodes as far as they are known.
    """

    hosts: tuple[str, ...]
    launcher: Launcher = ALONE
    library: str = ""
    slurm: str = ""
    site: Site | None = None
    program: str = "mpistrat doctor"
    silent: Mapping[int, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    @functools.cached_property
    def nodes(self) -> dict[str, list[int]]:
        """The ranks of each node, by its name, in order of their lowest ranks."""
        nodes: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts):
            nodes.setdefault(host, []).append(rank)
        return nodes

    def slurm_node(self, rank: int) -> str:
        """Return Slurm's name of a rank's node, for its options."""
        return self.hosts[rank].partition("@")[0]

    def local_rank(self, rank: int) -> int:
        """Return the index of a rank among those of its node."""
        return self.nodes[self.hosts[rank]].index(rank)

    def who(self, some: Collection[int]) -> str:
        """Name ranks and their nodes: ``"rank 1 on n0"``, ``"ranks 0-3 on n0, n1"``."""
        if self.size == 1:
            return "this process"
        hosts = list(dict.fromkeys(self.hosts[rank] for rank in sorted(some)))
        shown = ", ".join(hosts[:_MOST_HOSTS])
        if len(hosts) > _MOST_HOSTS:
            shown += f" and {len(hosts) - _MOST_HOSTS} more"
        if len(set(some)) == self.size:
            return "all ranks"
        return f"rank{'s' if len(set(some)) > 1 else ''} {ranges(some)} on {shown}"


def site_of(job: Job) -> Site:
    """Return the site that the job is compared with.

    Raises
    ------
    NotHere
        None was named.
    """
    if job.site is None:
        raise NotHere("no site is named (--site NAME)")
    return job.site


def by_value(facts: Mapping[int, V]) -> dict[V, list[int]]:
    """Return the ranks that have each value, the most frequent value first."""
    found: dict[V, list[int]] = {}
    for rank, value in sorted(facts.items()):
        found.setdefault(value, []).append(rank)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))
