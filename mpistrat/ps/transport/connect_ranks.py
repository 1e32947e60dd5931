"""Connect the ranks of a job: agree on roles by MPI, then open sockets or MPI tunnels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.cluster.devices.gpu_binding import SeenGpus
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.cluster.topology import host_name
from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.ps.transport.local_sockets import LocalListener, connect_local
from mpistrat.ps.transport.roles import Member, Roster, member_of
from mpistrat.ps.transport.stream import Stream
from mpistrat.ps.transport.worker_devices import devices_of_workers, named, seen_gpus
from mpistrat.system.liveness import udp

if TYPE_CHECKING:
    from mpistrat.ps.transport.mpi_tunnel import MpiTunnel

__all__ = ["connect_ranks"]


@dataclass(frozen=True)
class _Contact:
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
    gpus
        The GPUs that a worker can see which names no devices; else None.
    """

    member: Member
    host: str
    network: str
    name: bytes
    port: int
    token: bytes
    gpus: SeenGpus | None

    @property
    def place(self) -> tuple[str, str]:
        """Where others have to be to reach the socket."""
        return self.host, self.network


def connect_ranks(
    resolver: ClusterResolver,
    communicator: Communicator,
    wanted: Sequence[str],
    comm: Any = None,
    devices: Sequence[str] | None = None,
) -> Endpoint:
    """Return this rank's role and its connections. **Collective** over all ranks of the job.

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
        Of a worker's replicas; None for the GPUs bound to it, or one CPU.

    Raises
    ------
    ClusterError
        On all ranks: the roles do not make a job.
    UsageError, BackendUnavailableError
        On all ranks: a rank's devices are none, or not there.
    CommunicationTimeoutError
        A rank did not connect within ``MPISTRAT_TIMEOUT``.

    Notes
    -----
    **Collective.** Cost: one all-gather of what the ranks say of themselves; then, with W workers
    and S ps, W + S connections of the chief, S + 1 of a worker, W + 1 of a ps, each with one
    message. So S has to grow much more slowly than W. Later a request, an answer and a function
    are a message each; a variable is one to each ps; the end is one from the chief to every
    member.
    """
    rank = communicator.rank
    with communicator.checking():
        me = _on_devices(member_of(resolver, rank, wanted), devices)
        gpus = seen_gpus() if me.task_type == "worker" and devices is None else None
    with LocalListener(communicator.size) as listener:
        contact = _Contact(
            me, host_name(), _network(), listener.name, udp.here(), listener.token, gpus
        )
        # Each rank listens before the others learn the name of its socket, so no connect() is too
        # early.
        contacts: list[_Contact] = communicator.allgather_object(contact)
        with communicator.checking():
            contacts = _with_devices(contacts)
            me = contacts[rank].member
            roster = Roster([one.member for one in contacts])
            uid = contacts[roster.chief.rank].name.hex()
        streams = _connected(listener, contacts, rank)
    tunnel = _tunnel(contacts, rank, comm)
    if tunnel is None:
        return Endpoint(me, roster, streams, uid)
    for other, sock in tunnel.start().items():
        member = contacts[other].member
        streams[member] = Stream(sock, str(member), other)
    return Endpoint(me, roster, streams, uid, tunnel.close)


def _on_devices(me: Member, devices: Sequence[str] | None) -> Member:
    """Return a member with the devices that it names, which only workers have."""
    if devices is None:
        return me
    if me.task_type == "worker":
        return replace(me, devices=named(devices, me.task_id))
    raise UsageError(
        f"Server of {me} with devices={devices!r}; expected None: the functions that run on"
        " devices are those of workers"
    )


def _with_devices(contacts: Sequence[_Contact]) -> list[_Contact]:
    """Return what all ranks told, each worker with its devices."""
    members = devices_of_workers([one.member for one in contacts], [one.gpus for one in contacts])
    return [replace(one, member=own) for one, own in zip(contacts, members, strict=True)]


def _connected(
    listener: LocalListener, contacts: Sequence[_Contact], rank: int
) -> dict[Member, Stream]:
    """Connect to lower ranks, which have their sockets open by now, and accept higher ones."""
    me, place = contacts[rank].member, contacts[rank].place
    near = {one.member.rank: one for one in contacts if one.place == place}
    peers = {other: contact for other, contact in near.items() if me.talks_to(contact.member)}
    streams = {}
    # connect() returns once the listener's backlog has the connection: nobody has to accept it for
    # that, and ranks that connect to each other in any order do not block each other.
    for other, contact in peers.items():
        if other < rank:
            sock = connect_local(
                contact.name, contact.token, rank, contact.member, config.timeout_s()
            )
            streams[contact.member] = Stream(sock, str(contact.member), other)
    later = {other: contact.member for other, contact in peers.items() if other > rank}
    for other, sock in listener.accept(later, config.timeout_s()).items():
        streams[later[other]] = Stream(sock, str(later[other]), other)
    return streams


def _far(contacts: Sequence[_Contact], rank: int) -> list[Member]:
    """Return whom a rank talks to and cannot reach by sockets: those on other machines."""
    mine = contacts[rank]
    others = [one.member for one in contacts if one.place != mine.place]
    return [one for one in others if mine.member.talks_to(one)]


def _tunnel(contacts: Sequence[_Contact], rank: int, comm: Any) -> MpiTunnel | None:
    """Connect to members on other machines. **Collective** if there are any in the job."""
    # All ranks have the same contacts and come to the same answer: MpiTunnel duplicates the MPI
    # communicator, which needs all of them.
    if not any(_far(contacts, one) for one in range(len(contacts))):
        return None
    from mpistrat.ps.transport.mpi_tunnel import MpiTunnel

    peers = {member.rank: contacts[member.rank].port for member in _far(contacts, rank)}
    return MpiTunnel(mpi.world() if comm is None else comm, peers, config.timeout_s())


def _network() -> str:
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
