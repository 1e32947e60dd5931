"""The progress loop: every wait of a communicator happens here, with its deadline."""

from __future__ import annotations

import os
import time

from mpistrat import config
from mpistrat.collectives.backends.base import Request, SleepingRequest
from mpistrat.collectives.checking import deadlock, stall
from mpistrat.collectives.health import interrupts
from mpistrat.collectives.progress.long_wait import LongWait
from mpistrat.collectives.progress.work import Awaited
from mpistrat.collectives.progress.work_queue import NAP_S, WorkQueue
from mpistrat.errors import CommunicationTimeoutError
from mpistrat.system.waiting import wait_until

__all__ = ["Engine"]

_SPINS = 50  # tests in a row before the core is offered to others
_LOOK_EVERY = 32  # offers of the core between looks at the clock and at the peers' notices
_WAY_NAPS = 20  # naps, before a thread that waits takes the lock, for others to take it first
_NAP_AFTER_S = 0.02  # a wait this long costs at most a nap more
_STAY_S = 2e-3  # how long the backend itself waits, where it can, at first,
_SLEEP_S = 0.02  # and in long waits, between looks at the clock and at the peers


class Engine(WorkQueue):
    """The queue of one communicator's works, and the loop in which each is waited for."""

    def wait_before(self, request: Request, label: str | None) -> None:
        """Wait for a request with the deadline and the checks of a call, without counting one.

        The backend counts the call that follows.
        """
        self.start((one for one in (request,)), label).wait()
        self._started -= 1

    def _stay(self, work: Awaited, seconds: float) -> bool:
        """Let the backend itself wait for up to `seconds`; return whether it can."""
        self._give_way(work)
        with self._wanted, self._lock:  # for all of it: only one thread may drive the backend
            request = self._queue[0].request if self._queue else None
            if not isinstance(request, SleepingRequest):
                return False
            if work.done or self._thread_calls.has_pending(self):
                return False
            request.sleep(seconds)
            return True

    def _give_way(self, work: Awaited) -> None:
        """Let others have the lock first: a thread that waits takes it again and again."""
        for _ in range(_WAY_NAPS):
            if work.done or not self._wanted.count:
                return
            time.sleep(NAP_S)

    def wait(self, work: Awaited, timeout: float | None) -> None:
        """Run until `work` is over."""
        try:
            if not self.poll() and not self._stay(work, _STAY_S):
                self._spin(work)
            if not work.done:
                self._wait_slowly(work, timeout)
        except BaseException as error:
            self._give_up(error)
            raise

    def _spin(self, work: Awaited) -> None:
        """Keep the core for a moment, where the backend cannot wait by itself."""
        spins = 0
        while not work.done and spins < _SPINS:
            spins += not self.poll()

    def _wait_slowly(self, work: Awaited, timeout: float | None) -> None:
        has_ended = self.pause(work, 0.0)
        if work.done:  # as most are after one pause: they need no more than this
            return
        limit = config.timeout_s() if timeout is None else timeout
        long_wait = LongWait(self, work, limit, has_ended)
        is_over = wait_until(
            lambda: work.done,
            limit,
            long_wait.pause,
            look=long_wait.look,
            complain=self._say_blocked,
            complain_after_s=deadlock.say_after_s(self.gate.size),
        )
        if not is_over:
            raise self._stall(long_wait.waited)

    def pause(self, work: Awaited, waited: float) -> bool:
        """Let time pass after a wait of `waited` seconds; return whether a work ended.

        The backend's own wait comes first: it sleeps until a peer rings. This loop offers the
        core again and again, which keeps it from a peer that is to run on it.
        """
        is_long = waited > _NAP_AFTER_S
        if self._stay(work, _SLEEP_S if is_long else _STAY_S):
            os.sched_yield()  # it may have returned at once
            return self.poll()
        if is_long:
            time.sleep(NAP_S)
            return self.poll()
        for _ in range(_LOOK_EVERY):
            os.sched_yield()
            if work.done or self.poll():
                return True
        return False

    def _say_blocked(self) -> None:
        """Tell the peers where this rank has been waiting for long (deadlock.py)."""
        if not self.is_foreign:
            self._thread_calls.say(self.health.uid, self._first(), self.call_log.in_words())

    def check_peers(self) -> None:
        """Raise if the peers can never reach the call that this rank waits in."""
        self.health.check_peers()
        if not self.is_foreign:
            self._thread_calls.progress(self)
            if self.health.uid:
                self._thread_calls.check(self.health.uid, self._first(), self.call_log.in_words)

    def look_up(self, waited: float, limit: float) -> None:
        """Check for an interrupt, whether the peers can still come, and what they ask."""
        interrupts.check()
        health, call_log = self.health, self.call_log
        self.check_peers()
        # A peer's deadline has passed in this same call. `_stall` sends it the answer that it
        # waits for (stall.py): this rank is there, too.
        if waited <= limit and health.peers.is_asked(call_log.sequence):
            error = self._stall(waited)
            if not error.missing:
                health.check_peers()  # whoever asked has given up since, which says more
            raise error

    def _first(self) -> int:
        """Return the number of the work that the others wait for."""
        return self.started - len(self._queue) + 1

    def _stall(self, waited: float) -> CommunicationTimeoutError:
        request = self._queue[0].request if self._queue else None
        return stall.error(self.gate, waited, request)
