"""Connect the ranks of a job: agree on roles by MPI, then open sockets or MPI tunnels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.cluster.topology import host_name
from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.ps.transport.connections import Seat
from mpistrat.ps.transport.handshake import Door, knock
from mpistrat.ps.transport.roles import Member, Roster, member_of, replica_devices
from mpistrat.ps.transport.stream import Stream
from mpistrat.system.liveness import udp

if TYPE_CHECKING:
    from mpistrat.ps.transport.mpi_tunnel import Wire

__all__ = ["meet"]


@dataclass(frozen=True)
class _Card:
    """What a rank tells the others of itself, over MPI only.

    Attributes
    ----------
    member
        Its role.
    host, network
        Its machine, and the network namespace in which its socket has a name.
    name
        Of the socket where it listens; random, in no folder, gone with the process.
    port
        Where others ask whether its process still runs (udp.py).
    token
        What those who connect have to show: only ranks of this job know it.
    """

    member: Member
    host: str
    network: str
    name: bytes
    port: int
    token: bytes

    @property
    def place(self) -> tuple[str, str]:
        """Where others have to be to reach the socket."""
        return self.host, self.network


def meet(
    resolver: ClusterResolver,
    communicator: Communicator,
    wanted: Sequence[str],
    comm: Any = None,
    devices: Sequence[str] | None = None,
) -> Seat:
    """Take this rank's seat. **Collective** over all ranks of the job.

    Parameters
    ----------
    resolver
        Says the role of this rank.
    communicator
        Over all ranks.
    wanted
        The roles that this rank can play.
    comm
        The mpi4py communicator that `communicator` was made of; None for COMM_WORLD.
    devices
        Of a worker's replicas; None for one CPU.

    Raises
    ------
    ClusterError
        On all ranks: the roles do not make a job.
    UsageError, BackendUnavailableError
        On all ranks: a rank's devices are none, or not there.
    CommunicationTimeoutError
        A rank did not connect within ``MPISTRAT_TIMEOUT``.
    """
    rank = communicator.rank
    with communicator.checking():
        me = _on_devices(member_of(resolver, rank, wanted), devices)
    with Door(communicator.size) as door:
        card = _Card(me, host_name(), _network(), door.name, udp.here(), door.token)
        cards: list[_Card] = communicator.allgather_object(card)
        with communicator.checking():
            roster = Roster([one.member for one in cards])
            uid = cards[roster.chief.rank].name.hex()
        streams = _connected(door, cards, rank)
    wire = _wire(cards, rank, comm)
    if wire is None:
        return Seat(me, roster, streams, uid)
    for other, sock in wire.start().items():
        member = cards[other].member
        streams[member] = Stream(sock, str(member), other)
    return Seat(me, roster, streams, uid, wire.close)


def _on_devices(me: Member, devices: Sequence[str] | None) -> Member:
    """Return a member with its devices, which workers have."""
    if me.task_type == "worker":
        return replace(me, devices=replica_devices(devices, me.task_id))
    if devices is not None:
        raise UsageError(
            f"Server of {me} with devices={devices!r}; expected None: the functions that run on"
            " devices are those of workers"
        )
    return me


def _connected(door: Door, cards: Sequence[_Card], rank: int) -> dict[Member, Stream]:
    """Connect to lower ranks, which have their doors open by now, and let higher ones in."""
    me, place = cards[rank].member, cards[rank].place
    near = {one.member.rank: one for one in cards if one.place == place}
    peers = {other: card for other, card in near.items() if me.talks_to(card.member)}
    streams = {}
    for other, card in peers.items():
        if other < rank:
            sock = knock(card.name, card.token, rank, card.member, config.timeout_s())
            streams[card.member] = Stream(sock, str(card.member), other)
    later = {other: card.member for other, card in peers.items() if other > rank}
    for other, sock in door.let_in(later, config.timeout_s()).items():
        streams[later[other]] = Stream(sock, str(later[other]), other)
    return streams


def _far(cards: Sequence[_Card], rank: int) -> list[Member]:
    """Return whom a rank talks to and cannot reach by sockets: those on other machines."""
    mine = cards[rank]
    others = [one.member for one in cards if one.place != mine.place]
    return [one for one in others if mine.member.talks_to(one)]


def _wire(cards: Sequence[_Card], rank: int, comm: Any) -> Wire | None:
    """Connect to members on other machines. **Collective** if there are any in the job."""
    if not any(_far(cards, one) for one in range(len(cards))):
        return None
    from mpistrat.ps.transport.mpi_tunnel import Wire

    peers = {member.rank: cards[member.rank].port for member in _far(cards, rank)}
    return Wire(mpi.world() if comm is None else comm, peers, config.timeout_s())


def _network() -> str:
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
