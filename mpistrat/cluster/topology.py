"""`Topology`: which ranks are on which machine, and this rank's index on its own."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat import config
from mpistrat.cluster.launcher import mpi_agreement

__all__ = ["Topology", "host_name"]


def host_name() -> str:
    """Return a name that ranks share if and only if they share a machine.

    It is the host's name, or Slurm's name of the node. Where these are different, both are in it:
    several nodes can be on one machine, and an mpirun can hand Slurm's name of one node to all.
    With ``MPISTRAT_NODE_SIZE`` ranks of one machine pretend to be on several.
    """
    name = host = socket.gethostname()
    node = os.environ.get("SLURMD_NODENAME")
    if node:
        name = node if host.partition(".")[0] == node.partition(".")[0] else f"{node}@{host}"
    module = sys.modules.get("mpi4py.MPI")
    ranks = config.node_size()
    if ranks and module is not None:
        name += f"+{module.COMM_WORLD.rank // ranks}"
    return name


@dataclass(frozen=True)
class Topology:
    """The machine of every rank, and this rank's index on its own.

    Attributes
    ----------
    rank, size
        Index in the communicator, and its length.
    node, num_nodes
        Index of this rank's machine, in order of their lowest ranks; number of machines.
    local_rank, local_size
        Index among the ranks of the same machine, and their number.
    hostnames
        Name of the machine of every rank, by rank: Slurm's where there is one, if these tell the
        machines apart.
    devices
        Device strings that this rank can use, TensorFlow's spelling.
    """

    rank: int
    size: int
    node: int
    num_nodes: int
    local_rank: int
    local_size: int
    hostnames: tuple[str, ...]
    devices: tuple[str, ...]

    @classmethod
    def from_hosts(cls, rank: int, hosts: Sequence[str]) -> Topology:
        """Build the view of `rank` from `host_name` of every rank. **Local.**"""
        nodes = list(dict.fromkeys(hosts))
        mine = [r for r, host in enumerate(hosts) if host == hosts[rank]]
        return cls(
            rank=rank,
            size=len(hosts),
            node=nodes.index(hosts[rank]),
            num_nodes=len(nodes),
            local_rank=mine.index(rank),
            local_size=len(mine),
            hostnames=_shortened(hosts),
            devices=(f"/job:worker/replica:0/task:{rank}/device:CPU:0",),
        )

    @classmethod
    def of(cls, comm: Any = None) -> Topology:
        """Build the view of this rank of an mpi4py communicator (None: COMM_WORLD).

        Notes
        -----
        **Collective** over `comm`, which is used for one exchange of host names.

        Raises
        ------
        ClusterError
            On all ranks: what the launcher told one of them does not fit MPI.
        """
        from mpistrat.cluster import mpi

        comm = mpi.world() if comm is None else comm
        if comm is None:
            return cls.from_hosts(0, [host_name()])
        told = mpi_agreement.announced(mpi.world_place())
        hosts, everyone = zip(*comm.allgather((host_name(), told)), strict=True)
        mpi_agreement.check(hosts, everyone)
        return cls.from_hosts(comm.rank, hosts)


def _shortened(hosts: Sequence[str]) -> tuple[str, ...]:
    """Leave out the hosts' own names where Slurm's names of the nodes tell them apart."""
    short = [host.partition("@")[0] for host in hosts]
    return tuple(short if len(set(short)) == len(set(hosts)) else hosts)
