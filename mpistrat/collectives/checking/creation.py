"""The wait of a communicator's creation: told of ranks that can never take part in it."""

from __future__ import annotations

from collections.abc import Callable

from mpistrat.cluster import ended_ranks
from mpistrat.collectives.checking import deadlock
from mpistrat.errors import PeerLostError
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.waiting import wait_until

__all__ = ["PAUSE_S", "Creation"]

PAUSE_S = 1e-4
"""Between two looks whether all ranks take part."""

_LOOK_FOR_ENDED_S = 1.0  # between two looks for programs that have ended


class Creation:
    """The wait of one communicator's creation, in which all ranks of the job take part.

    Parameters
    ----------
    size
        Their number.
    rank_of
        Returns the rank, in what the communicator is made of, of one in COMM_WORLD, or None.
    """

    def __init__(self, size: int, rank_of: Callable[[int], int | None] = int) -> None:
        self._size, self._rank_of = size, rank_of
        self._next_look_s = _LOOK_FOR_ENDED_S
        self._thread_calls = deadlock.current()
        self._thread_calls.creations += 1
        ended_ranks.take_back()

    def wait_until(self, test: Callable[[], object], timeout_s: float) -> bool:
        """Wait until `test` holds; return whether it did in time.

        Raises
        ------
        PeerLostError, MismatchError
            It cannot: a process has ended, or a peer waits elsewhere for this rank.
        """
        return wait_until(
            test,
            timeout_s,
            PAUSE_S,
            look=self._check,
            complain=self._say,
            complain_after_s=deadlock.say_after_s(self._size),
        )

    def _check(self, waited_s: float) -> None:
        number = self._thread_calls.creations
        self._thread_calls.check_lost_or_leaving(self._size, self._in_words())
        if waited_s > self._next_look_s:
            self._next_look_s = waited_s + _LOOK_FOR_ENDED_S
            self._check_ended_ranks()
        self._thread_calls.progress()
        self._thread_calls.check(deadlock.CREATION, number, self._in_words)

    def _check_ended_ranks(self) -> None:
        """Raise `PeerLostError` if a rank's program has ended, which no communicator knows of."""
        for world_rank, status in sorted(ended_ranks.exit_statuses().items()):
            rank = self._rank_of(world_rank)
            # The end of the job by this error has the status that the rank chose.
            exit_hooks.ending.status_of_job = exit_hooks.ending.status_of_job or status
            raise PeerLostError(
                f"{self._in_words()} cannot finish: the program of rank {world_rank} has ended"
                f" (exit status {status}) without making it; make it on all ranks, or on none",
                -1 if rank is None else rank,
                world_rank,
            )

    def _say(self) -> None:
        """Tell the peers of this wait, which lasts."""
        self._thread_calls.say(deadlock.CREATION, self._thread_calls.creations, self._in_words())

    def _in_words(self) -> str:
        return "the making of a strategy or communicator"
