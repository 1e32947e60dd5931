"""The synchronous queue: rounds of calls, one on each worker, which end together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.ps.transport.roles import Member

__all__ = ["RoundQueue"]


class RoundQueue:
    """Calls that wait for a worker; as many as there are workers make a round; a `CallQueue`.

    Parameters
    ----------
    workers
        All of the job. The call at a place of a round runs on the worker of that index; if that
        has ended, on any other with as many replicas.

    Notes
    -----
    Workers do not wait for each other: a call of the next round begins when the chief has let the
    ps apply what those of this one gave.
    """

    affects_all_workers = True

    def __init__(self, workers: Sequence[WorkerState]) -> None:
        self._workers = workers
        self._pending: deque[Call] = deque()  # of later rounds
        self._members: list[Call] = []  # of this round, by their places
        self._idle: dict[int, Call] = {}  # those among them that no worker has, by place
        self._may_be_short = self._is_ending = False

    @property
    def is_open(self) -> bool:
        """Whether there is a round that has not been applied."""
        return bool(self._members)

    @property
    def has_waiting_call(self) -> bool:
        """Whether there is a call that no worker has."""
        return bool(self._pending or self._idle)

    @property
    def has_startable_call(self) -> bool:
        """Whether there is a call of this round that no worker has."""
        return bool(self._idle) or (bool(self._pending) and self._is_filling)

    @property
    def _is_filling(self) -> bool:
        """Whether this round takes in more calls."""
        is_full = len(self._members) == len(self._workers)
        return not (is_full or self._is_ending or self._has_failed)

    @property
    def _has_failed(self) -> bool:
        return any(call.value.error is not None for call in self._members)

    def add(self, call: Call) -> None:
        """Take in a new call."""
        self._pending.append(call)

    def put_back(self, calls: Sequence[Call]) -> None:
        """Take in calls that were begun by a worker that has ended."""
        self._idle.update((call.place, call) for call in calls)

    def drop(self) -> list[Call]:
        """Forget the calls that no worker has, and return them; the caller fails them.

        A round with a failed call is void.
        """
        dropped = [*self._idle.values(), *self._pending]
        self._idle.clear()
        self._pending.clear()
        return dropped

    def take_for(self, worker: WorkerState, chosen: Sequence[Call]) -> Call | None:
        """Return a call of this round for a worker, or None."""
        del chosen
        self._fill()
        mine = worker.member.task_id
        places = [mine] if mine in self._idle else []
        # Those of workers that have ended, also while its own waits for what one of them returns.
        places += [place for place in self._idle if self._stands_in(worker, place)]
        ready = (place for place in places if self._idle[place].is_ready)
        place = next(ready, None)
        return None if place is None else self._idle.pop(place)

    def _stands_in(self, worker: WorkerState, place: int) -> bool:
        """Return whether a worker may run the call of a worker that has ended.

        With more replicas or fewer it would take another share of the round's batch.
        """
        ended = self._workers[place]
        return ended.is_lost and worker.member.num_replicas == ended.member.num_replicas

    @property
    def irreplaceable_loss(self) -> Member | None:
        """A worker that has ended and whose calls no other can run, or None."""
        left = [worker for worker in self._workers if not worker.is_lost]
        for place, worker in enumerate(self._workers):
            if worker.is_lost and not any(self._stands_in(other, place) for other in left):
                return worker.member
        return None

    def _fill(self) -> None:
        while self._pending and self._is_filling:
            call = self._pending.popleft()
            call.place = len(self._members)
            self._members.append(call)
            self._idle[call.place] = call

    def end_short(self) -> None:
        """Let this round end without being full: somebody waits for all that was scheduled."""
        self._may_be_short = True

    def take_ended(self) -> list[int] | None:
        """Return the numbers of the calls to apply if the round has ended, in their places.

        None: it has not. A round with a function that has failed is void: an empty list. No call
        begins from then until :meth:`begin_next`.
        """
        if not self._members or not all(call.value.is_done for call in self._members):
            return None
        has_failed = self._has_failed
        is_short = len(self._members) < len(self._workers) and not has_failed
        # Calls that wait fill it up; without any, it stays open until somebody waits for its end.
        if is_short and (self._pending or not self._may_be_short):
            return None
        self._is_ending = True
        return [] if has_failed else [call.number for call in self._members]

    def begin_next(self) -> None:
        """Begin the next round."""
        self._members.clear()
        self._may_be_short = self._is_ending = False
