"""`ShardServer`: the loop of a parameter server, which serves the messages of all members."""

from __future__ import annotations

import select

from mpistrat.errors import PeerLostError
from mpistrat.ps.messages import Fail, Question, decoded
from mpistrat.ps.server.operations import Operations
from mpistrat.ps.transport.encoding import Encoded
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.ps.transport.roles import Member
from mpistrat.ps.transport.stream import Stream
from mpistrat.system.log import get_logger

__all__ = ["ShardServer"]

_LOG = get_logger(__name__)


class ShardServer:
    """Serves the shards of one ps until the chief says that the job is over.

    Parameters
    ----------
    endpoint
        Of a ps.

    Notes
    -----
    One thread does everything, in the order in which it comes in, so what one member asks for is
    done in its order, and every change is whole. It never waits for a member: what one does not
    take in stays in memory, and the next one's turn comes. A request is a number and an encoded
    message; questions are answered with ``(number, errors, answer)``, where the errors are those
    of all that this member sent since its last answer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._operations = Operations(endpoint.me)
        self._errors: dict[int, list[Exception]] = {}  # by the stream's descriptor

    def serve(self) -> bool:
        """Do what comes in until the job is over; tell whether it has lost a member.

        Raises
        ------
        PeerLostError
            The chief has ended, or said that it has failed.
        """
        try:
            return self._serve()
        finally:
            self._operations.close()

    def _serve(self) -> bool:
        poll = select.poll()
        members = {}
        for member, stream in self._endpoint.streams.items():
            members[stream.fileno()] = (member, stream)
            poll.register(stream.fileno(), select.POLLIN)
        while self._operations.end is None:
            for fd, _ in poll.poll():
                member, stream = members[fd]
                if self._serve_member(member, stream):
                    # A socket is writable most of the time: POLLOUT without unsent data would end
                    # every poll.
                    wanted = select.POLLIN | (select.POLLOUT if stream.has_unsent else 0)
                    poll.modify(fd, wanted)
                else:
                    # poll() would report a closed connection at each turn.
                    poll.unregister(fd)
        return self._operations.end.has_lost

    def _serve_member(self, member: Member, stream: Stream) -> bool:
        """Carry out all requests that a member has sent; return whether it is still connected."""
        try:
            stream.flush()
            for request in stream.take():
                self._serve_request(stream, request)
        except PeerLostError:
            if member.task_type == "chief" and self._operations.end is None:
                # A flush can fail before the chief's last message was read.
                self._raise_reason(stream)
                raise
            self._operations.forget(member)
            _LOG.info("%s: %s has ended", self._endpoint.me, member)
            return False
        return True

    @staticmethod
    def _raise_reason(stream: Stream) -> None:
        """Raise with the chief's reason, if it has sent one before it ended."""
        for _, found in stream.last_words():
            message = decoded(found)
            if isinstance(message, Fail):
                raise stream.failed(message.reason) from None

    def _serve_request(self, stream: Stream, request: tuple[int, Encoded]) -> None:
        number, found = request
        message = decoded(found)
        if isinstance(message, Fail):
            raise stream.failed(message.reason)
        errors = self._errors.setdefault(stream.fileno(), [])
        answer = None
        try:
            answer = self._operations.carry_out(message)
        except Exception as error:  # noqa: BLE001 - the member gets it with the next answer
            errors.append(error)
        if isinstance(message, Question):
            stream.post((number, list(errors), answer))
            errors.clear()
