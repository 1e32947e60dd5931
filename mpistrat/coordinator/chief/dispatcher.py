"""The chief's queue of calls: callers add and wait, a thread takes in the results."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.coordinator import failures
from mpistrat.coordinator.chief.call_queue import CallQueue
from mpistrat.coordinator.chief.call_sender import CallSender
from mpistrat.coordinator.chief.ledger import Ledger
from mpistrat.coordinator.chief.listener import Listener
from mpistrat.coordinator.chief.round_end import apply_round
from mpistrat.coordinator.chief.round_queue import RoundQueue
from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.unordered_queue import UnorderedQueue
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.coordinator.messages import Results
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.errors import (
    ClosedError,
    CommunicationError,
    CommunicationTimeoutError,
    CoordinatorError,
    MpistratError,
)
from mpistrat.ps.client.client import Client
from mpistrat.ps.transport.roles import Member
from mpistrat.system.log import get_logger
from mpistrat.system.waiting import wait_until

__all__ = ["Dispatcher"]

_LOG = get_logger(__name__)
_LOOK_S = 0.5  # poll interval of blocked callers


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
    A thread of its own takes in what workers send and gives them more; it calls the methods of
    `EventHandler`. The caller of `add` sends a call to an idle worker at once. One lock guards
    everything; no thread waits while holding it.
    """

    def __init__(
        self, client: Client, max_staleness: int | None = None, is_synchronous: bool = False
    ) -> None:
        self.max_staleness = max_staleness
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._waiting = self._fetching = 0  # threads that wait; those among them for one value
        self._client, endpoint = client, client.endpoint
        self.workers = [WorkerState(m, endpoint.streams[m]) for m in endpoint.roster.workers]
        self._rounds = RoundQueue(self.workers) if is_synchronous else None
        unordered = UnorderedQueue(self.workers, max_staleness)
        queue: CallQueue = unordered if self._rounds is None else self._rounds
        self._ledger = Ledger(self.workers, queue, mpi.outlives_ranks())
        self._sender = CallSender(self._ledger)
        if is_synchronous:
            self._sender.post_use_rounds()
        self._listener = Listener(endpoint, self.workers, self)

    @property
    def has_lost(self) -> bool:
        """Whether a worker was lost, and the job went on."""
        return self._ledger.has_lost

    # ---------------------------------------------------------------------- what callers do

    def add(self, call: Call, worker: WorkerState | None = None) -> None:
        """Take in a call for one worker; or for any, raising the error of an earlier one."""
        with self.lock:
            if worker is None:
                self._ledger.raise_error()
                self._sender.add(call)
            else:
                self._sender.add_for(worker, call)
            if self._sender.has_unsent:
                self._sender.has_unsent = False
                self._listener.ring()  # the thread sends the rest

    def forget_function(self, number: int) -> None:
        """Let workers drop a function; for finalizers: takes no lock."""
        for worker in self.workers:
            worker.dropped_functions.append(number)

    def forget_resource(self, number: int) -> None:
        """Let workers drop what they made for a `Resource`; for finalizers: takes no lock."""
        for worker in self.workers:
            worker.dropped_resources.append(number)

    def join(self) -> None:
        """Wait until nothing is left to be done; raise the error of a function."""
        with self.lock:
            while self._has_work() and self._ledger.end is None:
                self._end_open_round()
                self._wait()
            self._ledger.raise_error()

    def is_done(self) -> bool:
        """Tell whether nothing is left to be done; raise the error of a function."""
        with self.lock:
            self._ledger.raise_error()
            self._end_open_round()
            return not self._has_work()

    def _has_work(self) -> bool:
        """Return whether calls are under way, or a round of them is open."""
        is_open = self._rounds is not None and self._rounds.is_open
        return is_open or self._ledger.is_busy

    def _end_open_round(self) -> None:
        """Let the open round end once all of its calls are over: nothing is added to it."""
        if self._rounds is not None and self._rounds.is_open and not self._ledger.is_busy:
            self._rounds.end_short()
            self._listener.ring()

    def wait_for(self, value: RemoteValue) -> None:
        """Wait until there is a result or an error."""
        with self.lock:
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
        # Only this caller gets the error: the function may still finish, and the job goes on.
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
        with self.lock:
            self._ledger.close(ClosedError("this strategy was closed; make a new one"))
            self._sender.post_end()
        self._listener.ring()
        with self.lock:
            if not wait_until(self._have_all_left, config.timeout_s(), lambda _: self._wait()):
                self._raise_late()
        self.stop()

    def _have_all_left(self) -> bool:
        return all(worker.is_lost for worker in self.workers)

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

    # ------------------------------------------------- events, in the thread of the listener

    def on_ring(self) -> None:
        """Send what callers have left to be sent."""
        with self.lock:
            self._sender.send_to_all()

    def on_results(self, worker: WorkerState, results: Sequence[Results]) -> None:
        """Note results of a worker, and give it more."""
        ledger = self._ledger
        with self.lock:
            for message in results:
                worker.learn(message.average_s)
                for result in message.results:
                    ledger.finish(result, worker)
            if ledger.queue.affects_all_workers and ledger.queue.has_startable_call:
                self._sender.send_to_all()
            else:
                self._sender.send_to(worker)
            # A caller of join() needs only the last result, or an error: to wake it for each one
            # takes time from sending functions.
            if self._waiting and (self._fetching or not ledger.is_busy or ledger.error):
                self._changed.notify_all()

    def on_worker_lost(self, worker: WorkerState) -> None:
        """Let other workers run what a worker has not finished, if the job can go on."""
        with self.lock:
            if self._ledger.end is not None:
                worker.is_lost = True  # at the end of the job all of them end
            else:
                self._move_calls_of(worker)
            self._changed.notify_all()

    def _move_calls_of(self, worker: WorkerState) -> None:
        error = failures.worker_lost(worker)
        count = self._ledger.lose(worker, error)
        if count is not None:
            _LOG.warning("%s; its %d functions run on other workers", error, count)
        if self._ledger.end is None:
            self._sender.send_to_all()

    def on_member_lost(self, member: Member) -> None:
        """Go on without an evaluator, if the job can; without a ps it cannot."""
        with self.lock:
            if self._ledger.end is None:
                self._ledger.lose_member(member)
                if self._ledger.end is None:
                    _LOG.warning("%s has ended; the training goes on without it", member)
            self._changed.notify_all()

    def on_failure(self, error: BaseException) -> None:
        """End with an error of the thread itself."""
        self._fail(failures.broken(error))

    def _fail(self, error: MpistratError) -> None:
        """Note that the job cannot go on; after its end there is nothing to note."""
        with self.lock:
            self._ledger.end = self._ledger.end or error
            self._changed.notify_all()

    def after_events(self) -> None:
        """Let the ps apply a round that has ended, and begin the next."""
        if self._rounds is None:
            return
        with self.lock:
            has_ended = self._ledger.end is not None  # then the ps are not asked again
            numbers = None if has_ended else self._rounds.take_ended()
        if numbers is None:
            return
        failure: Exception | None = None
        try:
            # Without the lock, since this waits for the ps. `take_ended` keeps calls from
            # beginning meanwhile.
            apply_round(self._client, numbers)
        # Some ps may have applied the round and others not: training cannot go on from there.
        # Other errors come before any ps applies it.
        except (CommunicationError, CoordinatorError) as error:
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001 - the next call of schedule or join raises it
            failure = error
        self._begin_round(self._rounds, failure)

    def _begin_round(self, rounds: RoundQueue, failure: Exception | None) -> None:
        """Begin the next round; if this one could not be applied, give up what was scheduled."""
        with self.lock:
            if failure is not None:
                self._ledger.error = self._ledger.error or failure
                self._ledger.give_up("the end of a round")
            rounds.begin_next()
            self._sender.send_to_all()
            self._changed.notify_all()
