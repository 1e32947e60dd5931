"""The chief's side of the work: who gets which call when, and what has come of it."""

from __future__ import annotations

import itertools
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.cluster.log import get_logger
from mpistrat.coordinator import failures
from mpistrat.coordinator.calls import Call, WorkerQueue
from mpistrat.coordinator.closures import packed_buffer
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.errors import (
    ClosedError,
    CommunicationTimeoutError,
    CoordinatorError,
    MpistratError,
    PeerLostError,
)
from mpistrat.ps.seat import Seat

__all__ = ["Dispatcher"]

_LOG = get_logger(__name__)

_LOOK_S = 0.5  # how often who waits looks whether anything goes on
_MOST_LOSSES = 3  # workers that may end with one call, before it is taken for the reason
_FEW = 4  # calls; who has fewer is sent one at once, who has more gets several at a time


class Dispatcher:
    """Sends calls to workers and takes in their results.

    Parameters
    ----------
    seat
        The chief's.
    max_staleness
        How many calls before it a call may run beside, or None for any number.

    Notes
    -----
    A thread of its own takes in what workers send and gives them more. Who schedules sends a call
    to an idle worker at once. One lock guards everything; nobody waits while holding it.
    """

    def __init__(self, seat: Seat, max_staleness: int | None = None) -> None:
        self.max_staleness = max_staleness
        self._seat = seat
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._pending: deque[Call] = deque()
        self._numbers = itertools.count(1)
        self._orders = itertools.count(1)
        self._unfinished = 0
        self._waiting = self._fetching = 0  # threads that wait; those among them for one value
        self._is_over = False
        self.has_lost = False  # a worker, and went on
        self._error: BaseException | None = None  # of a function; raised once
        self._end: BaseException | None = None  # of the job; raised always
        self.workers = [WorkerQueue(m, seat.streams[m]) for m in seat.roster.workers]
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="mpistrat-dispatch", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------------- what callers do

    def add(self, call: Call, worker: WorkerQueue | None = None) -> None:
        """Take in a call for one worker; or for any, raising the error of an earlier one."""
        with self._lock:
            if worker is None:
                self._raise_error()
                call.order = next(self._orders)
            elif worker.is_lost:
                return
            self._unfinished += 1
            (self._pending if worker is None else worker.own).append(call)
            self._send_to(worker or min(self.workers, key=_load), is_soon=True)

    def forget(self, kind: str, number: int) -> None:
        """Let workers drop what nobody will use again; for finalizers: takes no lock."""
        for worker in self.workers:
            worker.forgotten.append((kind, number))

    def join(self) -> None:
        """Wait until nothing is left to be done; raise the error of a function."""
        with self._lock:
            while self._unfinished and self._end is None:
                self._wait()
            self._raise_error()

    def is_done(self) -> bool:
        """Tell whether nothing is left to be done; raise the error of a function."""
        with self._lock:
            self._raise_error()
            return not self._unfinished

    def wait_for(self, value: RemoteValue) -> None:
        """Wait until there is a result or an error."""
        with self._lock:
            self._fetching += 1
            try:
                while not value.is_done:
                    if self._end is not None:
                        raise self._end
                    self._wait()
            finally:
                self._fetching -= 1

    def _raise_error(self) -> None:
        if self._end is not None:
            raise self._end
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _wait(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait(_LOOK_S)
        finally:
            self._waiting -= 1
        limit, now = config.timeout_s(), time.monotonic()
        for worker in self.workers:
            if worker.sent and now - worker.since > limit:
                name = next(iter(worker.sent.values())).function.name
                raise CommunicationTimeoutError(
                    f"{worker.member} has been in function {name} for {now - worker.since:.0f} s;"
                    " if it may take so long, set MPISTRAT_TIMEOUT to more seconds",
                    (worker.member.rank,),
                )

    # --------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            self._take_turns()
        except BaseException as error:
            self._fail(failures.broken(error))  # else those who wait would do so for good
            raise

    def _take_turns(self) -> None:
        poll = select.poll()
        workers = {worker.stream.fileno(): worker for worker in self.workers}
        for fd in (*workers, self._rung.fileno()):
            poll.register(fd, select.POLLIN)
        servers = {self._seat.streams[one].fileno(): one for one in self._seat.roster.ps}
        for fd in servers:
            poll.register(fd, select.POLLRDHUP)
        while not self._is_over:
            for fd, _ in poll.poll():
                if fd == self._rung.fileno():
                    self._rung.recv(4096)
                elif fd in servers:
                    poll.unregister(fd)
                    self._fail(failures.ps_lost(servers[fd]))
                elif self._is_gone(workers[fd]):
                    poll.unregister(fd)
                    del workers[fd]
            with self._lock:
                self._go_on_sending(poll, workers)

    def _go_on_sending(self, poll: select.poll, workers: dict[int, WorkerQueue]) -> None:
        for fd, worker in workers.items():
            try:
                worker.stream.flush()
            except PeerLostError:
                pass  # the poll tells it too
            wants_out = select.POLLOUT if worker.stream.has_unsent else 0
            poll.modify(fd, select.POLLIN | wants_out)

    def _ring(self) -> None:
        try:
            self._bell.send(b".")
        except BlockingIOError:
            pass  # it rings already

    def _is_gone(self, worker: WorkerQueue) -> bool:
        """Take in what a worker has sent, and give it more; tell whether it has ended."""
        try:
            messages = worker.stream.take()
        except PeerLostError:
            with self._lock:
                self._lose(worker)
                self._changed.notify_all()
            return True
        with self._lock:
            for results, average_s in messages:
                worker.learn(average_s)
                for number, error, result in results:
                    self._finish(worker.note(number), worker, error, result)
            for one in [worker] if self.max_staleness is None else self.workers:
                self._send_to(one)
            if self._waiting and (self._fetching or not self._unfinished or self._error):
                self._changed.notify_all()
        return False

    def _fail(self, error: MpistratError) -> None:
        """Note that the job cannot go on; after its end there is nothing to note."""
        with self._lock:
            self._end = self._end or error
            self._changed.notify_all()

    # ------------------------------------------------------------------- under the lock only

    def _finish(self, call: Call | None, worker: WorkerQueue, error: Any, result: Any) -> None:
        if call is None:
            return
        self._unfinished -= 1
        if error is None:
            call.value.set_result(result)
            return
        found = failures.unpacked(error, call.function.name, worker.member)
        call.value.set_error(found)
        if self._error is None:
            self._error = found
            self._give_up(call.function.name)

    def _lose(self, worker: WorkerQueue) -> None:
        """Go on without a worker, if the job can; others run what it has not finished."""
        worker.is_lost = True
        if self._end is not None:  # at the end of the job all of them end
            return
        calls = [*worker.sent.values(), *worker.own]
        error = failures.worker_lost(worker)
        if not mpi.outlives_ranks() or all(one.is_lost for one in self.workers):
            self._end = error
            return
        self.has_lost = True
        worker.sent.clear()
        worker.own.clear()
        moved = [call for call in calls if not call.is_own]
        self._unfinished -= len(calls) - len(moved)
        _LOG.warning("%s; its %d functions run on other workers", error, len(moved))
        for call in moved:
            call.losses += 1
        if any(call.losses >= _MOST_LOSSES for call in moved):
            self._end = failures.deadly(moved)
            return
        self._pending.extendleft(reversed(moved))
        for other in self.workers:
            self._send_to(other)

    def _give_up(self, name: str) -> None:
        """Drop what has not been sent, since a function has failed; as in TensorFlow."""
        dropped = [*self._pending]
        self._pending.clear()
        for call in dropped:
            call.value.set_error(
                CoordinatorError(
                    f"{call.function.name} was not run: {name}, which was scheduled before, has"
                    " failed; schedule it again"
                )
            )
        self._unfinished -= len(dropped)

    def _send_to(self, worker: WorkerQueue, is_soon: bool = False) -> None:
        """Send calls to a worker, as many as it should have."""
        room = worker.room
        if is_soon and len(worker.sent) >= _FEW:
            return  # it is busy, and gets more with others when it has finished some
        calls: list[Call] = []
        while len(calls) < room and (worker.own or self._may_begin(calls)):
            calls.append((worker.own or self._pending).popleft())
        if calls:
            self._post(worker, calls)

    def _may_begin(self, chosen: Sequence[Call]) -> bool:
        """Tell whether the next call may run beside those that have not finished."""
        if not self._pending or self.max_staleness is None:
            return bool(self._pending)
        under_way = [*(worker.oldest for worker in self.workers), *chosen]
        orders = [call.order for call in under_way if call is not None and not call.is_own]
        following = self._pending[0].order
        return following - min(orders, default=following) <= self.max_staleness

    def _post(self, worker: WorkerQueue, calls: Sequence[Call]) -> None:
        forgotten = worker.take_forgotten()
        if not worker.sent:
            worker.since = time.monotonic()
        rows = []
        for call in calls:
            number, function = next(self._numbers), call.function
            shipped = None
            if function.number not in worker.known:
                shipped = packed_buffer(function.packed)
                worker.learn_function(function)
            packed = call.packed_for(worker.member.task_id)
            rows.append((number, function.number, shipped, packed_buffer(packed)))
            worker.sent[number] = call
            worker.sent_bytes += len(packed)
        try:
            worker.stream.post(("run", forgotten, rows))
        except PeerLostError:
            return  # the thread sees it too, and says so
        if worker.stream.has_unsent:
            self._ring()  # the thread sends the rest

    def close(self) -> None:
        """Tell the workers that the job is over, wait until all have ended, and stop.

        What they were sent they finish first, what they were not sent is given up.
        """
        with self._lock:
            self._end = self._end or ClosedError("this strategy was closed; make a new one")
            self._pending.clear()
            for worker in self.workers:
                worker.own.clear()
                if not worker.is_lost:
                    self._post_end(worker, self.has_lost)
        self._ring()
        end = time.monotonic() + config.timeout_s()
        with self._lock:
            while any(not worker.is_lost for worker in self.workers):
                self._wait()
                if time.monotonic() > end:
                    break
        self.stop()

    def stop(self) -> None:
        """Leave the workers alone from now on."""
        self._is_over = True
        self._ring()
        self._thread.join(config.timeout_s())

    @staticmethod
    def _post_end(worker: WorkerQueue, has_lost: bool) -> None:
        try:
            worker.stream.post(("end", has_lost))
        except PeerLostError:
            pass  # it has ended already


def _load(worker: WorkerQueue) -> tuple[bool, int]:
    return worker.is_lost, len(worker.sent) + len(worker.own)
