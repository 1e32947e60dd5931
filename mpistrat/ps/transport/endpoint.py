"""`Endpoint`: one member's role in a job, and its connections to other members."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import combinations

from mpistrat.errors import PeerLostError
from mpistrat.ps.messages import Fail
from mpistrat.ps.transport.encoding import encoded
from mpistrat.ps.transport.roles import Member, Roster
from mpistrat.ps.transport.stream import Stream
from mpistrat.system.waiting import wait_until

__all__ = ["Endpoint", "embedded_endpoints"]


_FAREWELL_S = 1.0  # how long who has failed waits for the others; some run long functions


class Endpoint:
    """A member of a job, connected to the others.

    Parameters
    ----------
    me
        Who this is.
    roster
        All members.
    streams
        The connections, by member.
    uid
        Of the job, the same for all of its members.
    on_close
        Called once after the connections were closed, if they need more than that.
    """

    def __init__(
        self,
        me: Member,
        roster: Roster,
        streams: Mapping[Member, Stream],
        uid: str,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.me, self.roster, self.uid = me, roster, uid
        self._on_close = on_close
        self.streams = dict(streams)

    def fail(self, reason: str) -> None:
        """Tell all others that this member cannot go on, wait shortly until they end, and close.

        Nobody else may use the connections meanwhile.
        """
        listening = []
        for member, stream in self.streams.items():
            with suppress(PeerLostError):  # who has ended needs to be told nothing
                found = encoded(Fail(reason))
                # `post` does not wait: a member in a long function reads nothing, and the others
                # are to be told. A ps expects the number of a request before the message.
                stream.post((0, found) if member.task_type == "ps" else found)
                listening.append(stream)

        def have_all_ended() -> bool:
            listening[:] = [stream for stream in listening if not _has_ended(stream)]
            return not listening

        wait_until(have_all_ended, _FAREWELL_S, 1e-3)
        self.close()

    def close(self) -> None:
        """End all connections; who is at the other end sees this member end. Idempotent."""
        for stream in self.streams.values():
            stream.close()
        # The thread of an MPI tunnel sends what is left in these sockets, and ends once they are
        # closed.
        self._on_close()


def embedded_endpoints(roster: Roster) -> dict[Member, Endpoint]:
    """Return the seats of all members in one process, connected with each other. **Local.**"""
    streams: dict[Member, dict[Member, Stream]] = {one: {} for one in roster.members}
    for first, second in combinations(roster.members, 2):
        if first.talks_to(second):
            one, other = socket.socketpair()
            streams[first][second] = Stream(one, str(second))
            streams[second][first] = Stream(other, str(first))
    uid = secrets.token_hex(8)
    return {one: Endpoint(one, roster, streams[one], uid) for one in roster.members}


def _has_ended(stream: Stream) -> bool:
    try:
        stream.flush()
        # Messages are dropped: the end of the connection shows once all before it is read.
        stream.take()
    except PeerLostError:
        return True
    return False
