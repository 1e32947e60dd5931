"""Messages over a socket between two members of a job, both ways and in order.

A message is plain data and arrays. What is long travels beside the pickle, without copies on the
way out. A socket tells at once when the other process has ended, however it did, and a process
that waits for one costs nothing.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mpistrat.errors import CommunicationTimeoutError, PeerLostError

__all__ = ["APART_BYTES", "Stream"]

APART_BYTES = 4096
"""Arrays from here on travel beside the pickle."""

_HEAD = struct.Struct("<IIQ")  # bytes of the pickle; buffers beside it; bytes of them all
_LENGTH = struct.Struct("<Q")
_AT_ONCE = 1 << 18  # bytes that one call may take in
_MOST_PIECES = 512  # of one call to the system, which takes 1024
_ALIGNMENT = 64
_BUFFER_BYTES = 1 << 20  # that the system may keep of what was sent; it may allow less


class Stream:
    """One end of a connection.

    Parameters
    ----------
    sock
        A connected stream socket; owned from now on.
    peer
        Who is at the other end, in words, such as ``"worker 1 (rank 2)"``.
    rank
        The other end's rank, which errors carry.

    Notes
    -----
    One thread at a time may send, and one at a time receive.
    """

    def __init__(self, sock: socket.socket, peer: str, rank: int = -1) -> None:
        # No call on the socket blocks: each wait is a poll with a deadline, in `_wait`.
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._sock = sock
        self.peer, self.rank = peer, rank
        self._outgoing: deque[memoryview] = deque()
        self._data = bytearray()
        self._start = 0
        self._body: tuple[memoryview, int] | None = None  # of a long message, and how much came

    def fileno(self) -> int:
        """Return the descriptor, for polls."""
        return self._sock.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether something of what was posted has not gone out yet."""
        return bool(self._outgoing)

    # -------------------------------------------------------------------------------- sending

    def send(self, message: Any, timeout: float) -> None:
        """Send a message; returns when the system has taken all of it.

        Raises
        ------
        CommunicationTimeoutError
            The peer takes nothing in for `timeout` seconds.
        PeerLostError
            Its process has ended.
        """
        self.post(message)
        while not self.flush():
            self._wait(select.POLLOUT, timeout, "to take a message in")

    def post(self, message: Any) -> None:
        """Send what the system takes now, and keep the rest for :meth:`flush`; never waits.

        Arrays in the message must stay as they are until it has gone out.
        """
        self._outgoing.extend(_encoded(message))
        self.flush()

    def flush(self) -> bool:
        """Go on with what was posted; tell whether all of it has gone out."""
        while self._outgoing:
            pieces = [self._outgoing[i] for i in range(min(len(self._outgoing), _MOST_PIECES))]
            try:
                sent = self._sock.sendmsg(pieces)
            except BlockingIOError:
                return False
            except OSError as error:
                raise self._lost() from error
            self._forget(sent)
        return True

    def _forget(self, sent: int) -> None:
        while sent:
            piece = self._outgoing[0]
            if sent < piece.nbytes:
                self._outgoing[0] = piece[sent:]
                return
            sent -= piece.nbytes
            self._outgoing.popleft()

    # ------------------------------------------------------------------------------ receiving

    def receive(self, timeout: float | None, what: str = "a message") -> Any:
        """Return the next message; wait for it.

        Parameters
        ----------
        timeout
            Seconds without a single byte after which it is an error; None waits for as long as
            the peer lives.
        what
            Is waited for, in words.

        Raises
        ------
        CommunicationTimeoutError
            The deadline has passed.
        PeerLostError
            The peer's process has ended.
        """
        while True:
            found = self.next_message()
            if found is not None:
                return found[0]
            if not self._take_in():
                self._wait(select.POLLIN, timeout, f"to send {what}")

    def take(self) -> list[Any]:
        """Return the messages that have arrived; never waits."""
        # One read, however much there is: the caller's poll reports the rest once others had their
        # turn.
        self._take_in()
        return self._parsed()

    def _parsed(self) -> list[Any]:
        found = []
        while (message := self.next_message()) is not None:
            found.append(message[0])
        return found

    def last_words(self) -> list[Any]:
        """Return what a peer that has ended said before."""
        with suppress(PeerLostError):
            while self._take_in():
                pass
        return self._parsed()

    def next_message(self) -> tuple[Any] | None:
        """Return a message that is here in full, in a tuple, or None."""
        have = len(self._data) - self._start
        if have < _HEAD.size:
            return None
        meta, count, nbytes = _HEAD.unpack_from(self._data, self._start)
        head = _HEAD.size + meta + count * _LENGTH.size
        if have < head:
            return None
        if nbytes and self._body is None:
            self._begin_body(head, nbytes)
        body, came = self._body or (memoryview(b""), 0)
        if came < nbytes:
            return None
        start = self._start + _HEAD.size + count * _LENGTH.size
        lengths = [
            _LENGTH.unpack_from(self._data, self._start + _HEAD.size + i * _LENGTH.size)[0]
            for i in range(count)
        ]
        pickled = memoryview(self._data)[start : start + meta]
        message = pickle.loads(pickled, buffers=_cut(body, lengths))
        # A bytearray cannot be resized, as `_drop` does, while a memoryview of it exists.
        pickled.release()
        self._drop(head)
        self._body = None
        return (message,)

    def _begin_body(self, head: int, nbytes: int) -> None:
        """Make room for what travels beside the pickle, and move what is here already."""
        # np.empty does not clear the memory, as bytearray(nbytes) would: it is written once.
        body = memoryview(np.empty(nbytes, np.uint8))  # type: ignore[arg-type]
        first = self._start + head
        came = min(len(self._data) - first, nbytes)
        with memoryview(self._data) as data:
            body[:came] = data[first : first + came]
        # What follows the head in `_data` now is the next message, if anything.
        del self._data[first : first + came]
        self._body = (body, came)

    def _drop(self, nbytes: int) -> None:
        self._start += nbytes
        if self._start == len(self._data):
            self._data.clear()
            self._start = 0
        # To delete at the front moves all that follows, so this is done now and then only.
        elif self._start > _AT_ONCE:
            del self._data[: self._start]
            self._start = 0

    def _take_in(self) -> bool:
        """Read what the system has; tell whether there was anything."""
        try:
            if self._body is not None and self._body[1] < len(self._body[0]):
                body, came = self._body
                # No further than the body's end: the next message's head stays in the socket.
                got = self._sock.recv_into(body[came:])
                self._body = (body, came + got)
                is_end = not got
            else:
                data = self._sock.recv(_AT_ONCE)
                self._data += data
                is_end = not data
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._lost() from error
        if is_end:
            raise self._lost()
        return True

    # -------------------------------------------------------------------------------- waiting

    def _wait(self, event: int, timeout: float | None, what: str) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        end = None if timeout is None else time.monotonic() + timeout
        while not poll.poll(None if end is None else max(0.0, end - time.monotonic()) * 1e3):
            if end is not None and time.monotonic() >= end:
                missing = () if self.rank < 0 else (self.rank,)
                raise CommunicationTimeoutError(
                    f"waited {timeout:g} s for {self.peer} {what}; it is alive, but busy or stuck:"
                    " look at what it does, or raise MPISTRAT_TIMEOUT",
                    missing,
                )

    def failed(self, reason: str) -> PeerLostError:
        """Return the error to raise when the peer has said that it cannot go on."""
        return PeerLostError(f"{self.peer} has failed with {reason}", self.rank)

    def _lost(self) -> PeerLostError:
        return PeerLostError(f"{self.peer} has ended", self.rank)

    def close(self) -> None:
        """Close the connection; the peer sees it as the end of this process. Idempotent."""
        self._sock.close()


def _encoded(message: Any) -> list[memoryview]:
    """Return a message as pieces of memory to send one after the other."""
    buffers: list[memoryview] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < APART_BYTES:
            return True
        buffers.append(raw)
        return False

    pickled = pickle.dumps(message, 5, buffer_callback=keep_inside)
    lengths = [one.nbytes for one in buffers]
    total = sum(map(_padded, lengths))
    head = _HEAD.pack(len(pickled), len(buffers), total)
    pieces = [memoryview(b"".join([head, *map(_LENGTH.pack, lengths), pickled]))]
    for one in buffers:
        pieces.append(one.cast("B"))
        # The next buffer begins at a multiple of 64 bytes in the receiver's memory, so arrays are
        # aligned.
        padding = _padded(one.nbytes) - one.nbytes
        if padding:
            pieces.append(memoryview(bytes(padding)))
    return pieces


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _cut(body: memoryview, lengths: Sequence[int]) -> list[memoryview]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(body[start : start + length])
        start += _padded(length)
    return pieces
