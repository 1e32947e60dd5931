"""The queue of one communicator's calls: the first one advances, the others wait behind it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mpistrat.collectives.backends.base import QueuedRequest, Steps
from mpistrat.collectives.checking import deadlock
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.progress.work import Work
from mpistrat.errors import CommunicationError, MpistratError

if TYPE_CHECKING:
    from mpistrat.collectives.progress.engine import Engine

__all__ = ["WorkQueue"]

_GLANCE_EVERY = 256  # tests of a user who does not wait
NAP_S = 50e-6
_NAPS = 60_000  # 3 s and more; counted, since a clock goes on while a process is stopped
_GIVE_UP_TRIES = 8  # each is lost to one more interrupt at most


class _Wanted:
    """A count of the threads that are inside of its ``with`` blocks."""

    def __init__(self) -> None:
        self._inside: deque[None] = deque()  # appending to it and popping are atomic

    @property
    def count(self) -> int:
        return len(self._inside)

    def __enter__(self) -> None:
        self._inside.append(None)

    def __exit__(self, *exception: object) -> None:
        self._inside.pop()


class WorkQueue:
    """The part of an `Engine` that begins works and keeps their order; the other waits for them.

    Attributes
    ----------
    is_foreign
        Whether another thread than its maker has used it, too.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate, self.health, self.call_log = gate, gate.health, gate.call_log
        self._started = self._glances = 0
        self.is_foreign = False
        self._fast = gate.backend.fast
        self._thread_calls = deadlock.current()
        self._thread_calls.add(self._engine)
        self._queue: deque[Work[Any]] = deque()
        self._lock = threading.RLock()  # several threads may wait for works of their own
        self._wanted = _Wanted()  # threads that wait for `_lock`, or hold it

    @property
    def _engine(self) -> Engine:
        """The same object, as works and other communicators know it: each queue is an engine."""
        return cast("Engine", self)

    @property
    def started(self) -> int:
        """Number of works started, by this engine and past it."""
        return self._started + (self._fast.fast_calls if self._fast is not None else 0)

    @property
    def is_pending(self) -> bool:
        """Whether works are under way."""
        return bool(self._queue)

    def start(
        self,
        steps: Steps,
        label: str | None = None,
        is_counted: bool = True,
        is_behind: bool = False,
        is_awaited: bool = False,
    ) -> Work[Any]:
        """Queue a call made for `label`; it begins at once if nothing is before it.

        With `is_behind` it is left to the backend, if that begins calls by itself. With
        `is_awaited` a short one is over when this returns, sooner than by :meth:`wait`.
        """
        self.health.check_open()
        self._started += is_counted
        self.is_foreign |= self._thread_calls is not deadlock.current()
        work: Work[Any] = Work(self._engine, steps, label)
        try:
            begin = partial(self._begin, work, is_behind, is_awaited)
            while not self._try_to_begin(begin, is_counted):
                self._wait_for_fast_call()
        except BaseException as error:  # Ctrl-C while the call began
            work.give_up(_lost(error))
            self._give_up(error)
            raise
        return work

    def take_over(self, steps: Steps, label: str | None, begun: QueuedRequest) -> Work[Any]:
        """Queue a fast call that has begun, and that the backend carries on with by itself."""
        self.health.check_open()
        self.is_foreign |= self._thread_calls is not deadlock.current()
        work: Work[Any] = Work(self._engine, steps, label)
        with self._wanted, self._lock:
            work.leave(begun)
            self.call_log.note_resumed()
            self._queue.extend([] if work.done else [work])
            self.allow_fast_calls()
        return work

    def _try_to_begin(self, begin: Callable[[], None], is_counted: bool) -> bool:
        """Begin or queue a work; return False if a fast call of another thread is to go first.

        Whoever lets fast calls begin has the lock, so that none does in between.
        """
        with self._wanted, self._lock:
            if is_counted and self._fast is not None:
                # In this order: a fast call claims the backend, then reads `is_ready` once more,
                # and so either withdraws or is seen by `is_busy` here.
                self._fast.is_ready = False
                if self._fast.is_busy and not self._queue:
                    return False
            begin()
            self.allow_fast_calls()
            return True

    def _begin(self, work: Work[Any], is_behind: bool, is_awaited: bool) -> None:
        if is_behind and self._may_leave():
            work.leave()
            is_over = work.done
        else:
            is_over = not self._queue and work.advance(is_awaited)
        if not is_over:
            self._queue.append(work)

    def _may_leave(self) -> bool:
        """Tell whether the backend may begin calls: all that are pending are its own."""
        can_queue = self.gate.carries_headers and self._fast is not None and self._fast.may_queue
        return can_queue and (not self._queue or self._queue[-1].is_ahead)

    def _wait_for_fast_call(self) -> None:
        """Let a fast call of another thread go first, which began first and is in no queue.

        It ends, or takes its place, within milliseconds.

        Raises
        ------
        CommunicationError
            It does not, or the communicator broke meanwhile.
        """
        if self._fast is None:
            return
        for _ in range(_NAPS):
            if not self._fast.is_busy or self._queue:
                return
            self.health.check_open()
            time.sleep(NAP_S)
        gate = self.gate
        raise CommunicationError(
            f"call {self.call_log.sequence} on rank {gate.names.here_by(gate.backend.name)},"
            " an allreduce of another thread, has neither ended nor taken its place in the queue:"
            " that thread was interrupted or stopped; look what it does"
        )

    def allow_fast_calls(self) -> None:
        """Let calls take the backend's shorter way if nothing speaks against it."""
        if self._fast is not None:
            self._fast.is_ready = self.health.is_open and not self._queue

    def take(self, error: Exception) -> Exception:
        """Return the error of a call; one that only this rank has breaks the communicator."""
        gate = self.gate
        if gate.size == 1 or self.call_log.is_known(error):
            return error
        if not isinstance(error, MpistratError):
            lost = CommunicationError(
                f"call {self.call_log.sequence} on rank {gate.names.here_by(gate.backend.name)}"
                f" failed with {type(error).__name__}: {error}"
            )
            lost.__cause__ = error
            error = lost
        self.health.break_off(error)
        return error

    def let_others_begin(self) -> None:
        """Let the calls begin that the backend holds back until one is over."""
        if self._fast is not None and self.health.broken is None:
            self._fast.resume()

    def poll(self) -> bool:
        """Advance the first work; return whether it is over.

        One thread at a time does that; the others have nothing to do.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._queue:
                return True
            is_over = self._queue[0].advance()
            if is_over:
                self._queue.popleft()
                self.allow_fast_calls()
            return is_over
        except BaseException as error:  # Ctrl-C, which ends a work's steps wherever they are
            self._give_up(error)
            raise
        finally:
            self._lock.release()

    def glance(self) -> None:
        """Once in a while, see whether the peers can still come; raise if they cannot."""
        self._glances += 1
        if self._glances % _GLANCE_EVERY:
            return
        try:
            self.health.check_peers()
        except BaseException as error:
            self._give_up(error)
            raise

    def forget(self, reason: str) -> None:
        """Give up all calls, and tell no peer: this process is no rank of the job. **Local.**"""
        self.health.give_up(reason)
        # Without the lock: in a forked child it may be held by a thread that exists no more.
        while self._queue:
            self._queue.popleft().give_up(CommunicationError(reason))

    def lose(self, sequence: int, error: BaseException) -> None:
        """Give up fast call `sequence`, which raised `error`, if nobody looks after it now.

        An interrupt does that: before the call is in the queue, or before it is waited for.
        **Local.**
        """
        is_interrupt = not isinstance(error, Exception)
        if not self.call_log.has_resumed(sequence) or (is_interrupt and self.is_pending):
            self._give_up(error)

    def _give_up(self, error: BaseException, tries: int = _GIVE_UP_TRIES) -> None:
        """Break off and end all works; what strikes meanwhile is raised after that."""
        try:
            self.health.break_off(error)
            self.allow_fast_calls()
            with self._lock:  # of the backend, too: another thread may be in its wait
                if self._fast is not None:
                    self._fast.drop()
                while self._queue:
                    # It leaves the queue last: an interrupt in between finds it here again.
                    self._queue[0].give_up(_lost(error))
                    self._queue.popleft()
        except BaseException:  # Ctrl-C again
            if tries > 1:
                self._give_up(error, tries - 1)
            raise


def _lost(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    return CommunicationError(f"interrupted: {error!r}")
