"""Accept connections on one machine, from those only that show the job's token.

The socket's name is in no folder, but every user of the machine can find it and connect.
"""

from __future__ import annotations

import secrets
import select
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from mpistrat.errors import CommunicationTimeoutError, PeerLostError
from mpistrat.ps.transport.roles import Member
from mpistrat.system.waiting import backoff

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LocalListener", "connect_local"]

_TOKEN_BYTES = 16
_RANK_BYTES = 4
_MOST_UNKNOWN = 64  # that have shown nothing yet, beyond the peers; then the oldest has to go


class LocalListener:
    """A socket that listens for peers.

    Parameters
    ----------
    peers
        How many may come.

    Attributes
    ----------
    name
        Random, and gone with the process.
    token
        What those who connect have to show: to be told to peers only.
    """

    def __init__(self, peers: int) -> None:
        # A leading NUL names a socket in Linux's abstract namespace, not in the file system.
        self.name = b"\0mpistrat-" + secrets.token_hex(16).encode()
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        self._most = peers + _MOST_UNKNOWN
        self._unknown: dict[int, tuple[socket.socket, bytearray]] = {}  # and what each has shown
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.bind(self.name)
        self._sock.listen(self._most)
        self._sock.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for sock, _ in self._unknown.values():
            sock.close()
        self._sock.close()

    def accept(self, expected: Mapping[int, Member], timeout_s: float) -> dict[int, socket.socket]:
        """Return a connection to each of some ranks; whoever else comes delays nobody.

        Raises
        ------
        CommunicationTimeoutError
            One did not come within `timeout_s`.
        """
        found: dict[int, socket.socket] = {}
        end = time.monotonic() + timeout_s
        while len(found) < len(expected):
            missing = [rank for rank in expected if rank not in found]
            for fd, _ in self._poll.poll(max(0.0, end - time.monotonic()) * 1e3):
                if fd == self._sock.fileno():
                    self._accept(missing, found)
                # An earlier event of this turn may have closed it to make room for another.
                elif fd in self._unknown:
                    self._listen_to(fd, missing, found)
            if len(found) < len(expected) and time.monotonic() > end:
                names = ", ".join(str(expected[rank]) for rank in missing)
                raise CommunicationTimeoutError(
                    f"waited {timeout_s:g} s for {names} to connect; look at what they do, or"
                    " raise MPISTRAT_TIMEOUT",
                    tuple(missing),
                )
        return found

    def _accept(self, missing: list[int], found: dict[int, socket.socket]) -> None:
        with suppress(BlockingIOError, ConnectionError):  # it has left again
            sock, _ = self._sock.accept()
            sock.setblocking(False)
            self._unknown[sock.fileno()] = sock, bytearray()
            self._poll.register(sock, select.POLLIN)
        if len(self._unknown) > self._most:
            self._make_room(missing, found)

    def _make_room(self, missing: list[int], found: dict[int, socket.socket]) -> None:
        """Close the oldest, unless all that it had to show has come by now."""
        fd = next(iter(self._unknown))
        self._listen_to(fd, missing, found)
        if fd in self._unknown:
            # A peer that is slow to show its token finds that it cannot, and comes again.
            self._forget(fd).close()

    def _forget(self, fd: int) -> socket.socket:
        self._poll.unregister(fd)
        return self._unknown.pop(fd)[0]

    def _listen_to(self, fd: int, missing: list[int], found: dict[int, socket.socket]) -> None:
        """Take in what somebody shows; accept it if all of it is here and right."""
        sock, shown = self._unknown[fd]
        try:
            # Not a byte more than token and rank: what follows belongs to the peer's first
            # message.
            new = sock.recv(_TOKEN_BYTES + _RANK_BYTES - len(shown))
        except BlockingIOError:
            return
        except OSError:
            new = b""
        shown += new
        if new and len(shown) < _TOKEN_BYTES + _RANK_BYTES:
            return
        self._forget(fd)
        rank = int.from_bytes(shown[_TOKEN_BYTES:], "little")
        is_peer = secrets.compare_digest(bytes(shown[:_TOKEN_BYTES]), self.token)
        if is_peer and rank in missing and rank not in found:
            found[rank] = sock
        else:
            sock.close()


def connect_local(
    name: bytes, token: bytes, rank: int, member: Member, timeout_s: float
) -> socket.socket:
    """Return a connection to the listener of `member`, for `rank`.

    Raises
    ------
    CommunicationTimeoutError
        So many others connect that it has no room for `timeout_s`.
    PeerLostError
        It has ended.
    """
    end, naps = time.monotonic() + timeout_s, backoff(0, 1e-3, 2, 0.05)
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect(sock, name, max(0.0, end - time.monotonic()))
            sock.sendall(token + rank.to_bytes(_RANK_BYTES, "little"))
        except BlockingIOError as error:
            sock.close()
            raise _no_room(member, timeout_s) from error
        except (BrokenPipeError, ConnectionResetError) as error:
            sock.close()
            # It had to make room, before it could see the token; if it has ended, connect() says
            # so next.
            if time.monotonic() > end:
                raise _no_room(member, timeout_s) from error
            time.sleep(next(naps))
        except OSError as error:
            sock.close()
            raise PeerLostError(
                f"{member} has ended before it accepted a connection ({error}); its own output"
                " may say why",
                member.rank,
            ) from error
        else:
            return sock


def _connect(sock: socket.socket, name: bytes, timeout_s: float) -> None:
    # A struct timeval, where zero would mean no deadline. connect() to a listener whose backlog is
    # full waits that long, and then fails with EAGAIN, which is BlockingIOError.
    patience = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6) or 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
    sock.connect(name)


def _no_room(member: Member, timeout_s: float) -> CommunicationTimeoutError:
    return CommunicationTimeoutError(
        f"waited {timeout_s:g} s for {member} to accept a connection; look at what it does, or"
        " raise MPISTRAT_TIMEOUT",
        (member.rank,),
    )
