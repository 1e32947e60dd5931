"""Run a job with parameter servers in one process, with threads as the servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mpistrat import config
from mpistrat.errors import PeerLostError
from mpistrat.ps.server.shard_server import ShardServer
from mpistrat.ps.transport.connections import Seat, embedded_seats
from mpistrat.ps.transport.roles import Roster

__all__ = ["Embedded"]


class Embedded:
    """The seats of all members of a job in this process, with a thread for each ps.

    Attributes
    ----------
    chief
        The chief's seat.
    workers
        The workers' seats, for who runs threads on them.
    """

    def __init__(self, roster: Roster) -> None:
        seats = embedded_seats(roster)
        self.chief = seats[roster.chief]
        self.workers: list[Seat] = [seats[one] for one in roster.workers]
        self._threads: list[threading.Thread] = []
        for member in roster.ps:
            self.start(seats[member], _serve)

    def start(self, seat: Seat, play: Callable[[Seat], None]) -> None:
        """Let a thread play the role of a seat; however it ends, the others see it."""

        def run() -> None:
            try:
                play(seat)
            except PeerLostError:
                pass  # the chief has left a job that failed; nobody needs to be told
            finally:
                seat.close()

        name = f"mpistrat-{seat.me.task_type}-{seat.me.task_id}"
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait until the servers have ended, which they do when the chief says so."""
        for thread in self._threads:
            thread.join(config.timeout_s())
        for seat in self.workers:
            seat.close()  # those on which no thread has run


def _serve(seat: Seat) -> None:
    ShardServer(seat).serve()
