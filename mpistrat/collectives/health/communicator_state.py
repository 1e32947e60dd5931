"""Keep whether a communicator is open, closed or broken, and tell its peers when it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpistrat.collectives.backends.base import Backend
from mpistrat.collectives.backends.control import Control
from mpistrat.collectives.checking.headers import Headers
from mpistrat.collectives.health.call_log import CallLog
from mpistrat.collectives.health.peers import Peers, short
from mpistrat.collectives.health.rank_names import RankNames
from mpistrat.errors import ClosedError, CommunicationError

if TYPE_CHECKING:
    from mpistrat.collectives.health.stacks import Stacks

__all__ = ["Health"]


class Health:
    """The health of one communicator and its ranks. All methods are **Local.**

    Attributes
    ----------
    peers
        What is known of the other ranks, from their notices.
    call_log
        The calls of this rank.
    stacks
        How to ask ranks that are missing what they do, where that is possible.
    uid
        A number that this communicator has on all its ranks, and no other one; 0 until agreed.
    on_break
        What ends transfers that the host cannot end by leaving them, or None. It is not called
        in a forked child, which has none.
    is_open
        Whether calls may begin: neither closed nor closing nor broken.
    """

    def __init__(
        self,
        backend: Backend,
        control: Control,
        headers: Headers,
        call_log: CallLog,
        names: RankNames,
    ) -> None:
        self._size, self._names = backend.size, names
        self._headers, self._fast = headers, backend.fast
        self.call_log = call_log
        self.peers = Peers(backend, control, names)
        self.stacks: Stacks | None = None
        self.on_break: Callable[[], None] | None = None
        self.uid = 0
        self.is_open = True  # asked in each call, and so not computed there
        self._closing = self._closed = False
        self._broken: str | None = None
        self._is_given_up = self._has_last_call = False

    @property
    def broken(self) -> str | None:
        """Why no further call can succeed, or None."""
        return self._broken

    @broken.setter
    def broken(self, reason: str) -> None:
        self._broken = reason
        self._shut()

    @property
    def closed(self) -> bool:
        """Whether the communicator was closed."""
        return self._closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self._closed = value
        self._shut()

    @property
    def closing(self) -> bool:
        """Whether the last crossing has begun, after which no notice may be sent."""
        return self._closing

    @closing.setter
    def closing(self, value: bool) -> None:
        self._closing = value
        self._shut()

    def end_calls(self) -> None:
        """Refuse new calls: the one that closes the communicator was the last."""
        self._has_last_call = True
        self._shut()

    def give_up(self, reason: str) -> None:
        """Refuse new calls, and tell nobody: this process has left the job."""
        self._is_given_up = True
        self.broken = reason

    def _shut(self) -> None:
        self.is_open = False
        if self._fast is not None:
            self._fast.is_ready = False

    def check_open(self) -> None:
        """Raise if this communicator was closed or is broken."""
        if self.is_open:
            return
        if self._closed or (self._has_last_call and self._broken is None):
            raise ClosedError("this communicator (or its strategy) was closed; make a new one")
        if self._is_given_up:
            raise CommunicationError(
                f"a communicator of rank {self._names.here} cannot be used here any more:"
                f" {self._broken}"
            )
        if self._broken is not None:
            raise CommunicationError(
                f"the communicator is broken on rank {self._names.here} since:"
                f" {self._broken}; make a new strategy on all ranks, or end the job (the last"
                " calls are on standard error, and in communicator.records())"
            )

    def check_peers(self) -> None:
        """Raise if a peer can never reach the call that this rank waits in."""
        self.peers.listen()
        self.peers.check(self.call_log.sequence)

    def fail(self, error: BaseException, is_end: bool = False) -> None:
        """Tell the peers that a replica function raised on this rank.

        An error that all ranks have just heard of together is nothing new to them, unless it
        ends this rank's program.
        """
        if self._size == 1 or self.broken is not None or self.closing or self.closed:
            return
        if not self.call_log.is_known(error) or is_end:
            self.peers.say_failed(error, self.call_log.completed)
            # Fast calls do not pass the gate, which would put this into their headers.
            self._headers.show_failures(self.peers.failures)

    def break_off(self, error: BaseException) -> None:
        """Give up a wait for good, and tell the peers."""
        if self.broken is None and not self.closed:
            self.broken = short(error)
            # Those before the one under way are complete: only peers in it or later have to fail.
            self.peers.say_broken(error, self.call_log.sequence - 1)
            self.call_log.recorder.end(is_done=False)
            self.call_log.show_last_calls()
            if self.on_break is not None:  # last: the peers wait for the news
                self.on_break()
