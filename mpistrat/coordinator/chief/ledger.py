"""Keep account of scheduled calls: waiting, given to a worker, finished; callers hold the lock."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.coordinator import failures
from mpistrat.coordinator.chief.call_queue import CallQueue
from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.coordinator.messages import CallResult
from mpistrat.errors import CoordinatorError
from mpistrat.ps.transport.roles import Member

__all__ = ["Ledger"]

_MOST_LOSSES = 3  # workers that may end with one call, before it is taken for the reason


class Ledger:
    """The calls of a job. It sends nothing and waits for nothing.

    Parameters
    ----------
    workers
        All of the job.
    queue
        Says which call begins next.
    can_lose
        Whether the job goes on without a member that has ended, other than a ps.

    Attributes
    ----------
    error
        Of a function; raised once.
    end
        Of the job; raised always.
    has_lost
        Whether the job has lost a member, and gone on.
    """

    def __init__(self, workers: Sequence[WorkerState], queue: CallQueue, can_lose: bool) -> None:
        self.workers, self.queue = workers, queue
        self._can_lose = can_lose
        self.error: BaseException | None = None
        self.end: BaseException | None = None
        self.has_lost = False

    @property
    def is_busy(self) -> bool:
        """Whether a call has not finished. It is not counted: an interrupt could come between."""
        return self.queue.has_waiting_call or any(one.sent or one.own for one in self.workers)

    def raise_error(self) -> None:
        """Raise what has gone wrong, if anything has."""
        if self.end is not None:
            raise self.end
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def finish(self, result: CallResult, worker: WorkerState) -> None:
        """Note what has come of a call."""
        call = worker.take_finished(result.number)
        if call is None:
            return
        if result.error is None:
            call.value.set_result(result.value)
            return
        found = failures.unpacked(result.error, call.function.name, worker.member)
        call.value.set_error(found)
        # One error stands for all that fail until a caller gets it; each RemoteValue keeps its
        # own.
        if self.error is None:
            self.error = found
            self.give_up(call.function.name)

    def take_for(self, worker: WorkerState, most: int) -> list[Call]:
        """Take the next calls for a worker off the queues; the caller sends them."""
        calls: list[Call] = []
        while len(calls) < most:
            # Its own come first: they make the datasets that functions scheduled later use.
            call = worker.own.popleft() if worker.own else self.queue.take_for(worker, calls)
            if call is None:
                break
            if not _fail_without_result(call):
                calls.append(call)
        return calls

    def lose(self, worker: WorkerState, error: Exception) -> int | None:
        """Go on without a worker, if the job can, else end with `error`.

        Returns
        -------
        int or None
            How many of its calls are for others to run; None if no worker can.
        """
        worker.is_lost = True
        calls = [call for call in (*worker.sent.values(), *worker.own) if not call.is_own]
        if not self._can_lose or all(one.is_lost for one in self.workers):
            self.end = error
            return None
        self.has_lost = True
        worker.sent.clear()
        worker.own.clear()
        lost = self.queue.irreplaceable_loss
        if lost is not None:
            self.end = failures.no_stand_in(lost)
            return None
        for call in calls:
            call.losses += 1
        if any(call.losses >= _MOST_LOSSES for call in calls):
            self.end = failures.deadly(calls)
        else:
            self.queue.put_back(calls)
        return len(calls)

    def lose_member(self, member: Member) -> None:
        """Go on without an evaluator, if the job can; without a ps it cannot."""
        if member.task_type == "ps":
            self.end = failures.ps_lost(member)
        elif self._can_lose:
            self.has_lost = True
        else:
            self.end = failures.evaluator_lost(member)

    def give_up(self, name: str) -> None:
        """Drop what has not been sent, since a function has failed; as in TensorFlow."""
        for call in self.queue.drop():
            call.value.set_error(
                CoordinatorError(
                    f"{call.function.name} was not run: {name}, which was scheduled before, has"
                    " failed; schedule it again"
                )
            )

    def close(self, error: BaseException) -> None:
        """End the job with `error`, or with an earlier one; drop all calls that no worker has."""
        self.end = self.end or error
        self.queue.drop()
        for worker in self.workers:
            worker.own.clear()


def _fail_without_result(call: Call) -> bool:
    """Fail a call if a result that it needs will never be; return whether it has failed."""
    errors = [one.error for one in call.arguments.needed if one.error is not None]
    if errors:
        call.value.set_error(errors[0])
    return bool(errors)
