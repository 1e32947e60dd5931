"""Prepare elements ahead of their use, in a thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from mpistrat.errors import MpistratError
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase

__all__ = ["AUTOTUNE", "Prefetcher"]

T = TypeVar("T")

AUTOTUNE = -1
"""A buffer size that leaves the number to the library, as ``tf.data.AUTOTUNE``."""

LIVENESS_CHECK_S = 1.0
"""How often a waiting consumer looks whether its producer still lives."""

_END_S = 10.0  # for the items that threads are making when the program ends


class _Channel(Generic[T]):
    """What the two threads share; the producer must not know the `Prefetcher` itself.

    Otherwise a dropped iterator would never be collected, and its thread never stop.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: deque[T] = deque()
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.is_done = False
        self.is_closed = False

    def put(self, item: T) -> bool:
        """Hand over one item; return False if the consumer has closed the channel."""
        with self.changed:
            # No liveness check here: a consumer that goes away closes the channel as it is
            # collected, and a waiting daemon thread does not keep the process alive.
            while len(self.items) >= self.capacity and not self.is_closed:
                self.changed.wait()
            if self.is_closed:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def finish(self, error: BaseException | None) -> None:
        """Say that no more items will come, and why."""
        with self.changed:
            self.error, self.is_done = error, True
            self.changed.notify_all()

    def close(self) -> None:
        """Say that no more items are wanted."""
        with self.changed:
            self.is_closed = True
            self.items.clear()
            self.changed.notify_all()


class _Threads:
    """The threads that run. Python must not end under them: native code in them would abort it."""

    def __init__(self) -> None:
        self._running: dict[threading.Thread, _Channel[Any]] = {}
        self._is_registered = False

    def start(self, thread: threading.Thread, channel: _Channel[Any]) -> None:
        if not self._is_registered:
            self._is_registered = True
            exit_hooks.register(Phase.FILES, self._end)
        self._running = {t: c for t, c in self._running.items() if t.is_alive()}
        thread.start()
        self._running[thread] = channel

    def _end(self) -> None:
        for channel in self._running.values():
            channel.close()
        end = time.monotonic() + _END_S
        for thread in self._running:
            thread.join(max(0.0, end - time.monotonic()))


_threads = _Threads()


def _produce(source: Iterable[T], channel: _Channel[T]) -> None:
    error: BaseException | None = None
    try:
        for item in source:
            if not channel.put(item):
                break
    except BaseException as caught:  # noqa: BLE001 - raised again where the item is used
        error = caught
    channel.finish(error)


class Prefetcher(Iterator[T]):
    """Iterate over `source` while a thread keeps the next items ready.

    Parameters
    ----------
    source
        Walked once, by the thread. It must not use MPI.
    buffer_size
        Items made ahead, at least 1.

    Notes
    -----
    **Local**. An exception in `source` is raised by the ``next`` that would have returned its
    item, with its own traceback; the iteration has then ended. The thread stops when the source
    ends, at `close`, and when the iterator is dropped, as soon as the source returns from the
    item it is working on.
    """

    def __init__(self, source: Iterable[T], buffer_size: int) -> None:
        self._channel: _Channel[T] = _Channel(buffer_size)
        self._thread = threading.Thread(
            target=_produce,
            args=(source, self._channel),
            name="mpistrat-prefetch",
            daemon=True,
        )
        self._finalizer = weakref.finalize(self, self._channel.close)
        _threads.start(self._thread, self._channel)

    def __next__(self) -> T:
        channel = self._channel
        with channel.changed:
            while not (channel.items or channel.is_done or channel.is_closed):
                if not channel.changed.wait(LIVENESS_CHECK_S):
                    self._check_alive()
            # Items before the error: those that were made by then are handed out.
            if channel.items:
                item = channel.items.popleft()
                channel.changed.notify_all()
                return item
            error, channel.error = channel.error, None
        self.close()
        if error is None:
            raise StopIteration
        try:
            raise error
        finally:
            del error  # it refers to this frame by its traceback: break the cycle

    def _check_alive(self) -> None:
        if not (self._thread.is_alive() or self._channel.is_done):
            raise MpistratError(
                "the prefetching thread ended without a result (was the process forked?);"
                " iterate again, or set experimental_per_replica_buffer_size=0"
            )

    def close(self) -> None:
        """Stop the thread; later calls of ``next`` find nothing. Idempotent."""
        self._finalizer()
