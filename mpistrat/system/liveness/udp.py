"""Detect by UDP and ICMP that a process on another machine has ended.

Each process of a job has a UDP port that it reads nothing from: the kernel throws away whatever
comes. Once the process has ended, however it did, the port is closed, and the kernel of its
machine answers a datagram with "port unreachable" (ICMP). So a rank that has waited for long sends
empty ones (udp_probe.py), and nobody has to run any code to answer.

Only a refusal says something. A machine that is down, a firewall that drops such packets, or a
process that got the port of a dead one leave it to the deadlines. An address may lead elsewhere:
the bridges of containers have the same ones on all machines. So while the process at the other end
certainly lives, the way to it is tried: a closed port there has to be refused, and its own not.

Forked children close the port. One that C code forks without ``exec`` keeps it open, and so hides
the end of its parent.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mpistrat.system.network.addresses import usual_address

__all__ = ["Place", "Port", "here", "is_known_to_have_ended", "mark_ended", "port"]

_IP_RECVERR, _SO_ATTACH_FILTER = 11, 26  # Linux; Python has no names for them
_DROP = struct.pack("HBBI", 0x06, 0, 0, 0)  # a filter of one instruction: keep 0 bytes
_ERROR = struct.Struct("IBBBBII")  # the head of struct sock_extended_err
_FROM_ICMP, _UNREACHABLE, _NO_PORT = 2, 3, 3
_ADDRESS = struct.Struct("!I")
_TRIED_S = 0.3  # within which the answers to a trial come
_LOOK_S = 1e-3  # between looks for refusals
_TRIES = 3


class Place(NamedTuple):
    """The address, port and identity of a process that can be probed by UDP.

    Attributes
    ----------
    address, port
        Its machine's IPv4 address, and its port there.
    closed
        A port that was closed there.
    owner
        A number of 64 bits for the machine, since several may have one address.
    """

    address: str
    port: int
    closed: int
    owner: int

    @classmethod
    def of(cls, number: int) -> Place:
        """Return the place that a :attr:`number` encodes."""
        address = socket.inet_ntoa(_ADDRESS.pack(number >> 32 & 0xFFFFFFFF))
        return cls(address, number >> 16 & 0xFFFF, number & 0xFFFF, number >> 64)

    @property
    def number(self) -> int:
        """The place encoded as a number below 2¹²⁸; the machine's part is `number >> 32`."""
        host = int(_ADDRESS.unpack(socket.inet_aton(self.address))[0])
        return self.owner << 64 | host << 32 | self.port << 16 | self.closed

    @property
    def machine(self) -> tuple[str, int]:
        """The machine's address and owner number."""
        return self.address, self.owner


class Port:
    """The UDP port of this process, from which it also probes other processes.

    Attributes
    ----------
    place
        Where it is.
    lock
        To be held by callers of methods that send or receive.
    """

    def __init__(self) -> None:
        self._socket = _opened()
        with _opened() as other:
            closed = other.getsockname()[1]
        self.place = Place(usual_address(), self._socket.getsockname()[1], closed, _owner())
        self.lock = threading.Lock()
        self._refused: dict[tuple[str, int], float] = {}  # since when
        self._marked: dict[tuple[str, int], float] = {}
        self._trials: dict[tuple[str, int], tuple[Place, float]] = {}
        self._right: set[tuple[str, int]] = set()  # machines to which their addresses lead
        self._look_at = 0.0

    def welcome(self, place: Place) -> None:
        """Record a process as alive that has just announced its place."""
        self._refused.pop(place[:2], None)
        self._marked.pop(place[:2], None)

    def attempt(self, place: Place) -> None:
        """Start a test whether a place's address leads to its machine."""
        if place.machine in self._right or place.machine in self._trials:
            return
        self._trials[place.machine] = place, time.monotonic()
        for port in (place.port, place.port, place.closed):
            self._refused.pop((place.address, port), None)
            self._send(place.address, port)

    def ask(self, place: Place) -> bool:
        """Probe a process; return whether a refusal would prove that it has ended."""
        is_right = place.machine in self._right
        if is_right:
            self._send(place.address, place.port)
        return is_right

    def _send(self, address: str, port: int) -> None:
        for _ in range(_TRIES):
            if self._is_sent(address, port):
                return

    def _is_sent(self, address: str, port: int) -> bool:
        """Send a datagram; return False where sending it again may succeed."""
        try:
            self._socket.sendto(b"", (address, port))
        except ConnectionRefusedError:  # not of this datagram, but an error of one before it
            self._take_refusals()
            return False
        except OSError:  # no route, or forbidden: there is no answer either
            return True
        return True

    def look(self) -> None:
        """Receive the ICMP refusals that have arrived."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        self._take_refusals()
        for place, began in list(self._trials.values()):
            if now - began > _TRIED_S:
                self._judge(place)

    def _take_refusals(self) -> None:
        with suppress(OSError):  # there are no more
            while True:
                _, notes, _, to = self._socket.recvmsg(1, 512, socket.MSG_ERRQUEUE)
                if any(map(_is_refusal, notes)):
                    self._refused.setdefault(to, time.monotonic())

    def _judge(self, place: Place) -> None:
        del self._trials[place.machine]
        if place[:2] not in self._refused and (place.address, place.closed) in self._refused:
            self._right.add(place.machine)

    def leads_to(self, place: Place) -> bool | None:
        """Tell whether an address leads to its machine; None while the test runs."""
        return None if place.machine in self._trials else place.machine in self._right

    def refused(self, place: Place) -> float | None:
        """Return the time at which a process was found to have ended, or None."""
        known = self._refused if place.machine in self._right else self._marked
        return known.get(place[:2], self._marked.get(place[:2]))

    def mark(self, place: Place) -> None:
        """Record that a process has ended, as another rank has found."""
        self._marked.setdefault(place[:2], time.monotonic())

    def close(self) -> None:
        """Close the port in a forked child, where it would outlive the parent."""
        self._socket.close()


def _opened() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    code = ctypes.create_string_buffer(_DROP, len(_DROP))
    program = struct.pack("@HP", 1, ctypes.addressof(code))
    # Before the port is bound, so that nothing is ever queued.
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
    sock.bind(("", 0))
    return sock


def _owner() -> int:
    """Return a number that identifies this machine."""
    known = [socket.gethostname()]
    with suppress(OSError):  # of this start of the machine, and of a container's network
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        known.append(os.readlink("/proc/self/ns/net"))
    name = hashlib.blake2b("\n".join(known).encode(), digest_size=8).digest()
    return int.from_bytes(name, "little")


def _is_refusal(note: tuple[int, int, Any]) -> bool:
    level, what, data = note
    if (level, what) != (socket.IPPROTO_IP, _IP_RECVERR):
        return False
    _, origin, kind, code, *_ = _ERROR.unpack_from(data)
    return (origin, kind, code) == (_FROM_ICMP, _UNREACHABLE, _NO_PORT)


_port: Port | None = None


def port() -> Port | None:
    """Return this process's port, if it has one. **Local.**"""
    return _port


def here() -> int:
    """Return the place of this process as a number (`Place.number`); 0 if it has no port.

    **Local**, idempotent: the first call opens the port.
    """
    global _port  # noqa: PLW0603 - a process has one
    if _port is None:
        try:
            _port = Port()
        except OSError:  # another system, or no IPv4
            return 0
        os.register_at_fork(after_in_child=_forget)
    return _port.place.number


def _forget() -> None:
    global _port  # noqa: PLW0603 - a process has one
    if _port is not None:
        _port.close()
        _port = None


def is_known_to_have_ended(place: int) -> bool:
    """Tell whether a process has refused a datagram, or another rank said so. **Local.**"""
    return _port is not None and place > 0 and _port.refused(Place.of(place)) is not None


def mark_ended(place: int) -> None:
    """Note that another rank knows a process to have ended. **Local.**"""
    if _port is not None and place > 0:
        _port.mark(Place.of(place))
