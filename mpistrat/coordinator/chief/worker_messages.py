"""Messages of the chief to a worker: calls with their functions, and the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from mpistrat.coordinator.chief.scheduled_call import Call, WorkerState
from mpistrat.coordinator.shipping import packed_buffer
from mpistrat.errors import PeerLostError

__all__ = ["post_calls", "post_end", "post_rounds"]


def post_calls(worker: WorkerState, calls: Sequence[Call], numbers: Iterator[int]) -> None:
    """Send calls to a worker and note that it has them; never waits.

    Parameters
    ----------
    numbers
        Each call gets the next one, by which its result comes back.
    """
    forgotten = worker.take_forgotten()
    if not worker.sent:
        worker.since = time.monotonic()
    rows = []
    for call in calls:
        number, function = next(numbers), call.function
        shipped = None
        if function.number not in worker.known:
            shipped = packed_buffer(function.packed)
            worker.learn_function(function)
        packed = call.packed_for(worker.member.task_id)
        more = call.place, [packed_buffer(one.packed()) for one in call.arguments.needed]
        rows.append((number, function.number, shipped, packed_buffer(packed), *more))
        worker.sent[number] = call
        worker.sent_bytes += len(packed)
    try:
        worker.stream.post(("run", forgotten, rows))
    except PeerLostError:
        pass  # who listens to the worker sees it too, and says so


def post_rounds(worker: WorkerState) -> None:
    """Tell a worker that its functions run in rounds."""
    try:
        worker.stream.post(("rounds",))
    except PeerLostError:
        pass  # as above


def post_end(worker: WorkerState, has_lost: bool) -> None:
    """Tell a worker that the job is over, and whether it has lost a member."""
    try:
        worker.stream.post(("end", has_lost))
    except PeerLostError:
        pass  # it has ended already
