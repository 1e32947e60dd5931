"""Find the host name or address under which the machines of a job reach each other."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mpistrat.errors import ClusterError

__all__ = ["Machine", "reachable_host", "usual_address"]

_ADDRESS_OF, _NETMASK_OF = 0x8915, 0x891B  # Linux: SIOCGIFADDR, SIOCGIFNETMASK
_ELSEWHERE = ("198.51.100.1", 9)  # which no machine has (RFC 5737); nothing is sent there


@dataclass(frozen=True)
class Machine:
    """The host name and the addresses of a machine.

    Attributes
    ----------
    name
        Its host name.
    interfaces
        Its IPv4 addresses with their networks, without the loopback.
    """

    name: str
    interfaces: tuple[ipaddress.IPv4Interface, ...]

    @classmethod
    def here(cls) -> Machine:
        """Return this machine. **Local.**"""
        found = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _, name in socket.if_nameindex():
                with suppress(OSError):  # it has no such address, or is down
                    address, mask = (_ask(sock, of, name) for of in (_ADDRESS_OF, _NETMASK_OF))
                    found.append(ipaddress.IPv4Interface(f"{address}/{mask}"))
        return cls(socket.gethostname(), tuple(one for one in found if not one.ip.is_loopback))

    def knows(self, name: str) -> bool:
        """Tell whether this machine, the caller's, resolves a name to the machine of that name."""
        try:
            found = {one[4][0] for one in socket.getaddrinfo(name, None)}
        except OSError:
            return False
        # Some systems give their own name a loopback address, which is right for themselves only.
        return name == self.name or not any(ipaddress.ip_address(one).is_loopback for one in found)

    def address_for(self, others: Sequence[Machine]) -> str | None:
        """Return an address of this machine in a network that all machines share.

        One that another has as well, as bridges of containers do, does not count.
        """
        for mine in self.interfaces:
            if all(any(_are_neighbours(mine, its) for its in one.interfaces) for one in others):
                return str(mine.ip)
        return None


def reachable_host(allgather: Callable[[Any], list[Any]]) -> str:
    """Return the name, or else an address, by which other ranks reach this rank's machine.

    Parameters
    ----------
    allgather
        Gives every rank the objects of all ranks, in their order.

    Raises
    ------
    ClusterError
        On all ranks: a machine's name means nothing on another, and they share no network.

    Notes
    -----
    **Collective.**
    """
    me = Machine.here()
    machines: list[Machine] = allgather(me)
    others = [one for one in dict.fromkeys(machines) if one != me]
    unknown = [one.name for one in (*others, me) if not me.knows(one.name)]
    address = me.address_for(others)
    # Decided from what all ranks see: all use names, or all addresses, or all raise.
    facts = allgather((unknown, address))
    if not any(names for names, _ in facts):
        return me.name
    for rank, (_, found) in enumerate(facts):
        if found is None:
            who, names = next((r, names) for r, (names, _) in enumerate(facts) if names)
            raise ClusterError(
                f"rank {who} on {machines[who].name} cannot resolve the host name {names[0]}, and"
                f" {machines[rank].name} has no IPv4 address in one network with all other"
                " machines; make the names known on all of them (DNS, or /etc/hosts)"
            )
    return str(address)


def usual_address() -> str:
    """Return the IPv4 address by which this machine is usually reached. **Local.**

    That of its default route, else of its first interface, else the loopback's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):
        # Connecting a UDP socket chooses the route, and so the own address, without a packet.
        sock.connect(_ELSEWHERE)
        return str(sock.getsockname()[0])
    interfaces = Machine.here().interfaces
    return str(interfaces[0].ip) if interfaces else "127.0.0.1"


def _ask(sock: socket.socket, what: int, name: str) -> str:
    # struct ifreq has 16 bytes for the name, with a zero at the end.
    answer = fcntl.ioctl(sock.fileno(), what, struct.pack("256s", name.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])


def _are_neighbours(one: ipaddress.IPv4Interface, other: ipaddress.IPv4Interface) -> bool:
    return other.ip in one.network and other.ip != one.ip
