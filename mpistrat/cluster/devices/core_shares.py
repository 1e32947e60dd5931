"""Find out how many of its cores a rank may use, where ranks of one machine share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mpistrat.cluster.topology import Topology
from mpistrat.system.cpus import cores

__all__ = ["CoreShare", "share_of_cores"]


class CoreShare(NamedTuple):
    """What one rank may use.

    Attributes
    ----------
    cores
        How many.
    why
        Which ranks share them, in words.
    """

    cores: int
    why: str


def share_of_cores(topology: Topology, allgather: Callable[[Any], list[Any]]) -> CoreShare | None:
    """Return this rank's part of its cores; None if it shares them with no other rank.

    Parameters
    ----------
    topology
        Of the ranks.
    allgather
        Returns the objects of all ranks, by rank.

    Notes
    -----
    **Collective.**
    """
    mine = cores.usable()
    # Ranks that the launcher has bound to cores of their own share none.
    masks = allgather(mine)
    host = topology.hostnames[topology.rank]
    local = [mask for mask, one in zip(masks, topology.hostnames, strict=True) if one == host]
    if len(local) == 1:
        return None
    count = cores.fair_share(mine, local, cores.quota())
    why = f"{len(local)} ranks on {host} with {len(mine)} cores for this one"
    return CoreShare(count, why) if count < len(mine) else None
