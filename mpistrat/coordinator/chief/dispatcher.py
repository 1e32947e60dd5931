"""The chief's queue of calls: callers add and wait, a thread takes in the results."""

from __future__ import annotations

import threading
import time
from typing import Any

from mpistrat import config
from mpistrat.coordinator import failures
from mpistrat.coordinator.chief.ledger import Ledger
from mpistrat.coordinator.chief.listener import Ears, Listener
from mpistrat.coordinator.chief.round_queue import RoundQueue
from mpistrat.coordinator.chief.scheduled_call import Call, WorkerState
from mpistrat.coordinator.chief.unordered_queue import UnorderedQueue
from mpistrat.coordinator.chief.worker_messages import post_end, post_rounds
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.errors import (
    ClosedError,
    CommunicationError,
    CommunicationTimeoutError,
    CoordinatorError,
    MpistratError,
)
from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import ApplyRound, SumRound
from mpistrat.ps.transport.roles import Member

__all__ = ["Dispatcher"]

_PAUSES_S = (0.0, 0.1, 0.5, 2.0)  # before ps apply a round; memory may come back
_LOOK_S = 0.5  # how often who waits looks whether anything goes on


class Dispatcher:
    """Sends calls to workers and takes in their results.

    Parameters
    ----------
    client
        The chief's connections.
    max_staleness
        How many calls before it a call may run beside, or None for any number.
    is_synchronous
        Whether calls run in rounds, which end together.

    Notes
    -----
    A thread of its own takes in what workers send and gives them more. Who schedules sends a call
    to an idle worker at once. One lock guards everything; nobody waits while holding it.
    """

    def __init__(
        self, client: Client, max_staleness: int | None = None, is_synchronous: bool = False
    ) -> None:
        self.max_staleness = max_staleness
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = self._fetching = 0  # threads that wait; those among them for one value
        self._client, endpoint = client, client.endpoint
        self.workers = [WorkerState(m, endpoint.streams[m]) for m in endpoint.roster.workers]
        if is_synchronous:
            for worker in self.workers:
                post_rounds(worker)
        in_rounds, anyhow = RoundQueue(self.workers), UnorderedQueue(self.workers, max_staleness)
        self._ledger = Ledger(self.workers, in_rounds if is_synchronous else anyhow)
        ears = Ears(
            self._lock,
            self._send,
            self._take_in,
            self._lose,
            self._lose_member,
            lambda error: self._fail(failures.broken(error)),
            self._end_round,
        )
        self._listener = Listener(endpoint, self.workers, ears)

    @property
    def has_lost(self) -> bool:
        """Whether a worker was lost, and the job went on."""
        return self._ledger.has_lost

    # ---------------------------------------------------------------------- what callers do

    def add(self, call: Call, worker: WorkerState | None = None) -> None:
        """Take in a call for one worker; or for any, raising the error of an earlier one."""
        with self._lock:
            if worker is None:
                self._ledger.raise_error()
            self._ledger.add(call, worker)
            if self._ledger.has_unsent:
                self._ledger.has_unsent = False
                self._listener.ring()  # the thread sends the rest

    def forget(self, kind: str, number: int) -> None:
        """Let workers drop what nobody will use again; for finalizers: takes no lock."""
        for worker in self.workers:
            worker.forgotten.append((kind, number))

    def join(self) -> None:
        """Wait until nothing is left to be done; raise the error of a function."""
        with self._lock:
            while self._has_work() and self._ledger.end is None:
                self._end_open_round()
                self._wait()
            self._ledger.raise_error()

    def is_done(self) -> bool:
        """Tell whether nothing is left to be done; raise the error of a function."""
        with self._lock:
            self._ledger.raise_error()
            self._end_open_round()
            return not self._has_work()

    def _has_work(self) -> bool:
        """Return whether calls are under way, or a round of them is open."""
        return self._ledger.queue.is_open or self._ledger.is_busy

    def _end_open_round(self) -> None:
        """Let the open round end once all of its calls are over: nothing is added to it."""
        if self._ledger.queue.is_open and not self._ledger.is_busy:
            self._ledger.queue.want_end()
            self._listener.ring()

    def wait_for(self, value: RemoteValue) -> None:
        """Wait until there is a result or an error."""
        with self._lock:
            self._fetching += 1
            try:
                while not value.is_done:
                    if self._ledger.end is not None:
                        raise self._ledger.end
                    self._wait()
            finally:
                self._fetching -= 1

    def _wait(self) -> None:
        self._waiting += 1
        try:
            if not self._changed.wait(_LOOK_S):
                self._listener.ring()  # an interrupted caller may have left a call to be sent
        finally:
            self._waiting -= 1
        limit, now = config.timeout_s(), time.monotonic()
        for worker in self.workers:
            if worker.sent and not worker.is_lost and now - worker.since > limit:
                name = next(iter(worker.sent.values())).function.name
                raise CommunicationTimeoutError(
                    f"{worker.member} has been in function {name} for {now - worker.since:.0f} s;"
                    " if it may take so long, set MPISTRAT_TIMEOUT to more seconds",
                    (worker.member.rank,),
                )

    def close(self) -> None:
        """Tell the workers that the job is over, wait until all have ended, and stop.

        What they were sent they finish first, what they were not sent is given up.

        Raises
        ------
        CommunicationTimeoutError
            Some have not ended within ``MPISTRAT_TIMEOUT``.
        """
        with self._lock:
            ledger = self._ledger
            ledger.end = ledger.end or ClosedError("this strategy was closed; make a new one")
            ledger.drop()
            for worker in self.workers:
                worker.own.clear()
                if not worker.is_lost:
                    post_end(worker, ledger.has_lost)
        self._listener.ring()
        end = time.monotonic() + config.timeout_s()
        with self._lock:
            while any(not worker.is_lost for worker in self.workers):
                self._wait()
                if time.monotonic() > end:
                    self._raise_late()
        self.stop()

    def _raise_late(self) -> None:
        late = [worker.member for worker in self.workers if not worker.is_lost]
        raise CommunicationTimeoutError(
            f"{', '.join(map(str, late))} did not end within {config.timeout_s():g} s of close();"
            " what they do may be stuck, or set MPISTRAT_TIMEOUT to more seconds",
            tuple(member.rank for member in late),
        )

    def stop(self) -> None:
        """Leave the workers alone from now on."""
        self._listener.stop()

    # ------------------------------------------------------------------------- in the thread

    def _send(self) -> None:
        with self._lock:
            self._ledger.send_to_all()

    def _take_in(self, worker: WorkerState, messages: list[Any]) -> None:
        """Note results of a worker, and give it more."""
        ledger = self._ledger
        with self._lock:
            for results, average_s in messages:
                worker.learn(average_s)
                for number, error, result in results:
                    ledger.finish(number, worker, error, result)
            if ledger.queue.concerns_all and ledger.queue.may_give:
                ledger.send_to_all()
            else:
                ledger.send_to(worker)
            if self._waiting and (self._fetching or not ledger.is_busy or ledger.error):
                self._changed.notify_all()

    def _end_round(self) -> None:
        """Let the ps apply a round that is complete, and begin the next."""
        with self._lock:
            has_ended = self._ledger.end is not None  # then the ps are not asked again
            numbers = None if has_ended else self._ledger.queue.complete()
        if numbers is None:
            return
        failure: Exception | None = None
        try:
            self._client.ask_all_ps(SumRound(numbers))
            if numbers:  # nothing is wrong on any ps, so all apply it or, else, none
                self._apply_round()
        except (CommunicationError, CoordinatorError) as error:
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001 - whoever schedules or joins gets it
            failure = error
        with self._lock:
            if failure is not None:
                self._ledger.error = self._ledger.error or failure
                self._ledger.give_up("the end of a round")
            self._ledger.queue.go_on()
            self._ledger.send_to_all()
            self._changed.notify_all()

    def _apply_round(self) -> None:
        """Let all ps apply what they have summed; ask again while one lacks memory for that."""
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            lacking = [one for one in self._client.ask_all_ps(ApplyRound()) if one]
            if not lacking:
                return
        raise failures.half_applied(lacking)

    def _lose(self, worker: WorkerState) -> None:
        with self._lock:
            self._ledger.lose(worker)
            self._changed.notify_all()

    def _lose_member(self, member: Member) -> None:
        """Go on without an evaluator, if the job can; without a ps it cannot."""
        with self._lock:
            self._ledger.lose_member(member)
            self._changed.notify_all()

    def _fail(self, error: MpistratError) -> None:
        """Note that the job cannot go on; after its end there is nothing to note."""
        with self._lock:
            self._ledger.end = self._ledger.end or error
            self._changed.notify_all()
