"""Keep account of scheduled calls: waiting, given to a worker, finished; callers hold the lock."""

from __future__ import annotations

import itertools
from typing import Any

from mpistrat.cluster import mpi
from mpistrat.coordinator import failures
from mpistrat.coordinator.chief.critical_section import uninterrupted
from mpistrat.coordinator.chief.round_queue import RoundQueue
from mpistrat.coordinator.chief.scheduled_call import Call, WorkerState
from mpistrat.coordinator.chief.unordered_queue import UnorderedQueue
from mpistrat.coordinator.chief.worker_messages import post_calls
from mpistrat.errors import CoordinatorError
from mpistrat.ps.transport.roles import Member
from mpistrat.system.log import get_logger

__all__ = ["Ledger"]

_LOG = get_logger(__name__)

_MOST_LOSSES = 3  # workers that may end with one call, before it is taken for the reason
_FEW = 4  # calls; who has fewer is sent one at once, who has more gets several at a time


class Ledger:
    """The calls of a job.

    Parameters
    ----------
    workers
        All of the job.
    queue
        Says which call begins next.

    Attributes
    ----------
    error
        Of a function; raised once.
    end
        Of the job; raised always.
    has_lost
        Whether the job has lost a member, and gone on.
    has_unsent
        Whether the system has not taken all that was posted; for who clears it.
    """

    def __init__(self, workers: list[WorkerState], queue: UnorderedQueue | RoundQueue) -> None:
        self.workers, self.queue = workers, queue
        self.error: BaseException | None = None
        self.end: BaseException | None = None
        self.has_lost = self.has_unsent = False
        self._numbers = itertools.count(1)

    @property
    def is_busy(self) -> bool:
        """Whether a call has not finished. It is not counted: an interrupt could come between."""
        return self.queue.has_waiting or any(one.sent or one.own for one in self.workers)

    def raise_error(self) -> None:
        """Raise what has gone wrong, if anything has."""
        if self.end is not None:
            raise self.end
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def add(self, call: Call, worker: WorkerState | None) -> None:
        """Take in a call for one worker, or for any."""
        if worker is not None and worker.is_lost:
            return
        if worker is not None:
            worker.own.append(call)
            self.send_to(worker, is_soon=True)
            return
        self.queue.add(call)
        if not self.queue.may_give:
            return
        if self.queue.concerns_all:
            self.send_to_all()
        else:
            self.send_to(min(self.workers, key=_load), is_soon=True)

    def finish(self, number: int, worker: WorkerState, error: Any, result: Any) -> None:
        """Note what has come of a call."""
        call = worker.note(number)
        if call is None:
            return
        self.queue.note(call, number, error is None)
        if error is None:
            call.value.set_result(result)
            return
        found = failures.unpacked(error, call.function.name, worker.member)
        call.value.set_error(found)
        if self.error is None:
            self.error = found
            self.give_up(call.function.name)

    def lose(self, worker: WorkerState) -> None:
        """Go on without a worker, if the job can; others run what it has not finished."""
        worker.is_lost = True
        if self.end is not None:  # at the end of the job all of them end
            return
        calls = [*worker.sent.values(), *worker.own]
        error = failures.worker_lost(worker)
        if not mpi.outlives_ranks() or all(one.is_lost for one in self.workers):
            self.end = error
            return
        self.has_lost = True
        worker.sent.clear()
        worker.own.clear()
        moved = [call for call in calls if not call.is_own]
        stranded = self.queue.stranded
        if stranded is not None:
            self.end = failures.no_stand_in(stranded)
            return
        _LOG.warning("%s; its %d functions run on other workers", error, len(moved))
        for call in moved:
            call.losses += 1
        if any(call.losses >= _MOST_LOSSES for call in moved):
            self.end = failures.deadly(moved)
            return
        self.queue.put_back(moved)
        self.send_to_all()

    def lose_member(self, member: Member) -> None:
        """Go on without an evaluator, if the job can; without a ps it cannot."""
        if self.end is not None:
            return
        if member.task_type == "ps":
            self.end = failures.ps_lost(member)
        elif mpi.outlives_ranks():
            self.has_lost = True
            _LOG.warning("%s has ended; the training goes on without it", member)
        else:
            self.end = failures.evaluator_lost(member)

    def give_up(self, name: str) -> None:
        """Drop what has not been sent, since a function has failed; as in TensorFlow."""
        for call in self.drop():
            call.value.set_error(
                CoordinatorError(
                    f"{call.function.name} was not run: {name}, which was scheduled before, has"
                    " failed; schedule it again"
                )
            )

    def drop(self) -> list[Call]:
        """Forget what any worker could run and none has begun, and return it."""
        return self.queue.drop()

    def _lacks_result(self, call: Call) -> bool:
        """Fail a call if a result that it needs will never be; tell whether that is so."""
        errors = [one.error for one in call.arguments.needed if one.error is not None]
        if errors:
            self.queue.note(call, 0, is_good=False)
            call.value.set_error(errors[0])
        return bool(errors)

    def send_to_all(self) -> None:
        """Send each worker what it should have."""
        for worker in self.workers:
            self.send_to(worker)

    def send_to(self, worker: WorkerState, is_soon: bool = False) -> None:
        """Send calls to a worker, as many as it should have."""
        if is_soon and len(worker.sent) >= _FEW:
            return  # it is busy, and gets more with others when it has finished some
        room = worker.room
        if room > 0 and (worker.own or self.queue.may_give):
            with uninterrupted():
                self._send(worker, room)

    def _send(self, worker: WorkerState, room: int) -> None:
        calls: list[Call] = []
        while len(calls) < room:
            call = worker.own.popleft() if worker.own else self.queue.take_for(worker, calls)
            if call is None:
                break
            if not self._lacks_result(call):
                calls.append(call)
        if calls:
            post_calls(worker, calls, self._numbers)
            self.has_unsent = self.has_unsent or worker.stream.has_unsent


def _load(worker: WorkerState) -> tuple[bool, int]:
    return worker.is_lost, len(worker.sent) + len(worker.own)
