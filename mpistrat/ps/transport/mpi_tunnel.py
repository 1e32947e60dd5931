"""Carry the bytes of a connection between machines by MPI.

To a member such a connection is a socket like any other. At its other end a thread carries what
comes out of it to the peer's rank, and what the peer sends into it. While a peer is silent, that
asks after its process (udp_probe.py): MPI does not tell when that ends.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from mpi4py import MPI

from mpistrat.errors import ClusterError, CommunicationTimeoutError
from mpistrat.system.liveness.udp_probe import UdpProbe
from mpistrat.system.log import get_logger
from mpistrat.system.waiting import backoff, wait_until

__all__ = ["MpiTunnel"]

_LOG = get_logger(__name__)
_TAG = 1
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 8 << 20  # on the way to or from one peer; then it has to take some in
_FAREWELL_S = 2.0  # how long who ends waits for its peers to end, too
_PAUSES = (20, 5e-5, 1.2, 5e-3)  # between looks for messages, of which 20 come without a pause
_MOST_PAUSE_UNDER_WAY_S = 5e-4  # while messages go on only when MPI is called


class MpiTunnel:
    """The connections of a rank to those of other machines.

    Parameters
    ----------
    comm
        An mpi4py communicator over the job; duplicated.
    peers
        Where the peers' processes are (``udp.here``), by rank.
    timeout_s
        How long to wait for the other ranks to make theirs.

    Raises
    ------
    ClusterError
        MPI lets one thread only call it.
    CommunicationTimeoutError
        The others did not come.

    Notes
    -----
    **Collective** over `comm`, also for ranks without peers.
    """

    def __init__(self, comm: Any, peers: Mapping[int, int], timeout_s: float) -> None:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise ClusterError(
                "parameter servers on several machines need an MPI that any thread may call"
                " (MPI_THREAD_MULTIPLE), which this one was not started as; leave"
                " mpi4py.rc.thread_level at 'multiple'"
            )
        self._comm = _duplicate(comm, timeout_s)
        self._tunnels: list[_PeerTunnel] = []
        self._sockets: dict[int, socket.socket] = {}
        for rank, place in peers.items():
            mine, its = socket.socketpair()
            self._sockets[rank] = mine
            self._tunnels.append(_PeerTunnel(self._comm, rank, its, UdpProbe({rank: place})))
        self._thread: threading.Thread | None = None

    def start(self) -> dict[int, socket.socket]:
        """Begin to carry; return the connections by the peers' ranks, for their owner."""
        if self._tunnels:
            name = "mpistrat-tunnel"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        return self._sockets

    def close(self) -> None:
        """Wait until what was sent has gone, and shortly for the peers to end. Idempotent.

        The owner has closed its connections by now.
        """
        if self._thread is not None:
            self._thread.join(_FAREWELL_S)
            self._thread = None

    def _run(self) -> None:
        poll = select.poll()
        pauses = backoff(*_PAUSES)
        tunnels = list(self._tunnels)
        end: float | None = None  # when to give up waiting for the peers
        while tunnels and (end is None or time.monotonic() < end):
            is_busy = False
            for tunnel in tunnels:
                is_busy |= tunnel.carry()
            tunnels = [tunnel for tunnel in tunnels if not tunnel.is_over]
            # The owner has closed all connections: a peer that does not close its own must not
            # keep this thread for good.
            if end is None and all(tunnel.is_leaving for tunnel in tunnels):
                end = time.monotonic() + _FAREWELL_S
            pauses = backoff(*_PAUSES) if is_busy else pauses
            pause = next(pauses)
            if any(tunnel.is_under_way for tunnel in tunnels):
                pause = min(pause, _MOST_PAUSE_UNDER_WAY_S)
            # poll() counts whole milliseconds. A shorter pause is a sleep; a longer one ends early
            # if an owner writes.
            if pause < 1e-3:
                time.sleep(pause)
            else:
                _wait(poll, tunnels, pause)


class _PeerTunnel:
    """The way to one peer."""

    def __init__(self, comm: Any, rank: int, sock: socket.socket, watch: UdpProbe) -> None:
        sock.setblocking(False)
        self._comm, self._rank, self._watch = comm, rank, watch
        self.sock = sock
        self._leaving: deque[tuple[Any, bytes]] = deque()  # on their way to the peer
        self._leaving_bytes = 0
        self._arriving: tuple[Any, bytearray] | None = None
        self._given_up: list[Any] = []  # requests to the dead, whose memory MPI may still read
        self._messages = 0  # that have come
        self._arrived: deque[memoryview] = deque()  # for the owner
        self._arrived_bytes = 0
        self.is_leaving = False  # the owner has closed its connection
        self._has_peer_left = False
        self.is_over = False

    @property
    def is_under_way(self) -> bool:
        """Whether a message goes out or comes in right now."""
        return bool(self._leaving) or self._arriving is not None

    def carry(self) -> bool:
        """Do what can be done now; tell whether there was anything."""
        try:
            # `|` and not `or`: both are done, so that data move in both directions at once.
            is_busy = self._send() | self._receive()
        except MPI.Exception as error:  # the peer's rank has died, or MPI is broken
            self._give_up(str(error))
            is_busy = True
        # The count of messages names the wait: each message from the peer begins a new wait, so
        # that the process of a peer that sends is not asked after.
        if not is_busy and not self._has_peer_left and self._watch.ended(self._messages):
            self._give_up("its process has ended")
        is_busy |= self._hand_over()
        # The peer's last messages reach the owner before the end of the connection does.
        if self._has_peer_left and not self._arrived:
            self.sock.close()  # the owner sees that the peer has ended
            self.is_over = self.is_leaving and not self._leaving
        return is_busy

    def _give_up(self, reason: str) -> None:
        """Take the peer for gone."""
        _LOG.info("rank %d cannot be reached any more: %s", self._rank, reason)
        self._has_peer_left = self.is_leaving = True
        self._given_up += [self._leaving.copy(), self._arriving]
        self._leaving.clear()
        self._arriving = None

    def _send(self) -> bool:
        # MPI may read the bytes of an Isend until its request is complete: until then the deque
        # keeps them.
        while self._leaving and self._leaving[0][0].Test():
            self._leaving_bytes -= len(self._leaving.popleft()[1])
        if self.is_leaving or self._leaving_bytes > _MOST_BYTES:
            return False
        # MPICH 5.0 crashes if it sends to a process that has ended, so `may_send` comes before
        # each message; it may cost datagrams, so only with something to send.
        may_send = self._has_news() and self._watch.may_send(self._messages)
        if not (may_send or self._has_peer_left):
            return False
        try:
            # A peer that has closed its side gets an empty message back, and its thread ends with
            # that.
            data = b"" if self._has_peer_left else self.sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self.is_leaving = not data  # and an empty message says so
        self._leaving.append((self._comm.Isend([data, MPI.BYTE], self._rank, _TAG), data))
        self._leaving_bytes += len(data)
        return True

    def _has_news(self) -> bool:
        """Tell whether the owner has sent something, or closed its connection."""
        try:
            # Only a look: the bytes stay in the socket until `may_send` allows to carry them.
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _receive(self) -> bool:
        """Go on with what comes in; tell whether a message is here in full.

        Nothing waits for that meanwhile: other peers' messages come in, and answers go out.
        """
        self._arriving = self._arriving or self._next_message()
        if self._arriving is None:
            return False
        request, data = self._arriving
        if not request.Test():
            return False
        self._arriving = None
        self._messages += 1
        if data:
            self._arrived.append(memoryview(data))
            self._arrived_bytes += len(data)
        self._has_peer_left = not data
        return True

    def _next_message(self) -> tuple[Any, bytearray] | None:
        """Let the next message come in, if there is one: return the request, and its memory."""
        if self._has_peer_left or self._arrived_bytes > _MOST_BYTES:
            return None
        status = MPI.Status()
        # The length of a message is known from a probe only; a matched one keeps this message for
        # the receive below.
        message = self._comm.Improbe(self._rank, _TAG, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        return message.Irecv([data, MPI.BYTE]), data

    def _hand_over(self) -> bool:
        is_busy = False
        while self._arrived:
            piece = self._arrived[0]
            try:
                sent = self.sock.send(piece)
            except BlockingIOError:
                break
            except OSError:  # the owner has ended, and wants no more
                sent = len(piece)
            is_busy = True
            self._arrived_bytes -= sent
            if sent == len(piece):
                self._arrived.popleft()
            else:
                self._arrived[0] = piece[sent:]
        return is_busy


def _wait(poll: select.poll, tunnels: Iterable[_PeerTunnel], pause: float) -> None:
    """Pause, but for what an owner sends."""
    fds = [tunnel.sock.fileno() for tunnel in tunnels if not tunnel.is_leaving]
    for fd in (one for one in fds if one >= 0):
        poll.register(fd, select.POLLIN)
    poll.poll(pause * 1e3)
    for fd in (one for one in fds if one >= 0):
        with suppress(KeyError):
            poll.unregister(fd)


def _duplicate(comm: Any, timeout_s: float) -> Any:
    # Not Dup(), which would wait without a deadline for a rank that does not come.
    duplicate, request = comm.Idup()
    if not wait_until(request.Test, timeout_s, 1e-4):
        raise CommunicationTimeoutError(
            f"rank {comm.rank}/{comm.size} waited {timeout_s:g} s for all ranks to connect by"
            " MPI; make the strategy, or the Server, on every rank"
        )
    # A dead peer is then an MPI.Exception, which `carry` handles, and does not abort the job.
    duplicate.Set_errhandler(MPI.ERRORS_RETURN)
    return duplicate
