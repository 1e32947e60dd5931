"""Send workers the calls that they should have; callers hold the dispatcher's lock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import suppress

from mpistrat.coordinator.chief.ledger import Ledger
from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.coordinator.messages import CallToRun, RunCalls, UseRounds
from mpistrat.coordinator.shipping import packed_buffer
from mpistrat.errors import PeerLostError
from mpistrat.ps.messages import End, Message
from mpistrat.ps.transport.encoding import encoded
from mpistrat.system.critical_section import uninterrupted

__all__ = ["CallSender"]

_FEW = 4  # calls; who has fewer is sent one at once, who has more gets several at a time


class CallSender:
    """Takes calls off a ledger and posts them to workers. It never waits.

    Parameters
    ----------
    ledger
        Of the job.

    Attributes
    ----------
    has_unsent
        Whether the system has not taken all that was posted; whoever goes on sending clears it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._numbers = itertools.count(1)
        self.has_unsent = False

    def add(self, call: Call) -> None:
        """Put a call for any worker in the queue; send it at once if one is idle."""
        queue = self._ledger.queue
        queue.add(call)
        if not queue.has_startable_call:
            return
        if queue.affects_all_workers:
            self.send_to_all()
        else:
            self.send_to(min(self._ledger.workers, key=_load), is_soon=True)

    def add_for(self, worker: WorkerState, call: Call) -> None:
        """Take in a call for one worker, unless it has ended."""
        if not worker.is_lost:
            worker.own.append(call)
            self.send_to(worker, is_soon=True)

    def send_to_all(self) -> None:
        """Send each worker what it should have."""
        for worker in self._ledger.workers:
            self.send_to(worker)

    def send_to(self, worker: WorkerState, is_soon: bool = False) -> None:
        """Send calls to a worker, as many as it should have."""
        if is_soon and len(worker.sent) >= _FEW:
            return  # it is busy, and gets more with others when it has finished some
        room = worker.room
        if room > 0 and (worker.own or self._ledger.queue.has_startable_call):
            # Ctrl-C between the two steps would lose calls that were taken and not sent.
            with uninterrupted():
                calls = self._ledger.take_for(worker, room)
                if calls:
                    self._post_calls(worker, calls)

    def _post_calls(self, worker: WorkerState, calls: Sequence[Call]) -> None:
        # Before the calls are packed: a function that is dropped here and needed by one is sent
        # again.
        dropped = worker.take_dropped()
        if not worker.sent:
            worker.since = time.monotonic()
        rows = [tuple(self._to_run(worker, call)) for call in calls]
        _post(worker, RunCalls(*dropped, rows))
        self.has_unsent = self.has_unsent or worker.stream.has_unsent

    def _to_run(self, worker: WorkerState, call: Call) -> CallToRun:
        """Return a call as it is sent, and note that the worker has it."""
        # Each sending has a number of its own: what a worker that ended has staged for a round
        # under an earlier one is not applied.
        call.number, function = next(self._numbers), call.function
        shipped = None
        if function.number not in worker.known:
            shipped = packed_buffer(function.packed)
            worker.learn_function(function)
        packed = call.packed_for(worker.member.task_id)
        arguments = packed_buffer(packed)
        needed = call.arguments.needed
        results = [packed_buffer(one.packed()) for one in needed] if needed else []
        worker.sent[call.number] = call
        worker.sent_bytes += len(packed)
        return CallToRun(call.number, function.number, shipped, arguments, call.place, results)

    def post_use_rounds(self) -> None:
        """Tell all workers that their functions run in rounds."""
        for worker in self._ledger.workers:
            _post(worker, UseRounds())

    def post_end(self) -> None:
        """Tell the workers that are left that the job is over, and whether it lost a member."""
        for worker in self._ledger.workers:
            if not worker.is_lost:
                _post(worker, End(self._ledger.has_lost))


def _post(worker: WorkerState, message: Message) -> None:
    with suppress(PeerLostError):  # the listener sees it too, and tells the dispatcher
        worker.stream.post(encoded(message))


def _load(worker: WorkerState) -> tuple[bool, int]:
    return worker.is_lost, len(worker.sent) + len(worker.own)
