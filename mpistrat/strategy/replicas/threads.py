"""Run several replicas on one rank, as threads that take turns.

One replica runs at a time, in replica order, until it ends or hands over (``merge_call``, and so
every collective). When all have handed over, the merge function runs once, in the thread that
called ``run``. So results do not depend on how threads are scheduled.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mpistrat.errors import ContextError
from mpistrat.strategy import context
from mpistrat.strategy.context import Mode
from mpistrat.strategy.replicas.replica_context import ReplicaContext
from mpistrat.strategy.replicas.thread_pool import run_in_pool
from mpistrat.strategy.values import regroup, select_replica

__all__ = ["ReplicaThreads", "running"]

running: contextvars.ContextVar[ReplicaThreads | None] = contextvars.ContextVar(
    "mpistrat_running", default=None
)
"""The call of ``run`` that this thread is a replica of."""


class _Unwind(BaseException):
    """Thrown into replicas that wait while another one has failed; not for user code to catch."""


class _Replica:
    """One replica's thread, and what it hands over."""

    def __init__(
        self, owner: ReplicaThreads, replica: ReplicaContext, call: Callable[[], Any]
    ) -> None:
        self._owner = owner
        self.replica = replica
        self._call = call
        # step() and unwind(), in the thread of run(), release `_resume`, for which the replica
        # waits in hand_over(); the replica's _tell() releases `_yielded`, for which step() waits.
        self._resume, self._yielded = _closed_lock(), _closed_lock()
        self._has_started = self._runs = False
        self._ends = self._is_left = False  # whether it is to end, and without anyone waiting
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.request: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = None
        self.answer: Any = None
        self.thrown: BaseException | None = None

    def step(self) -> None:
        """Let the replica run until it ends or hands over."""
        self._runs = True
        if not self._has_started:
            self._has_started = True
            # In a copy of the caller's context: scopes hold in it, and its own end with it.
            run_in_pool(partial(contextvars.copy_context().run, self._main))
        else:
            self._resume.release()
        self._yielded.acquire()
        # Not reached if Ctrl-C interrupts the wait: unwind() then finds that the replica still
        # runs.
        self._runs = False

    def _main(self) -> Callable[[], None]:
        running.set(self._owner)
        try:
            with context.enter(Mode(self.replica.strategy, self.replica)):
                self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of run()
            self.error = error
        self.done = True
        return self._tell  # called once the thread is idle: the next step may take it

    def _tell(self) -> None:
        """Wake the thread of run(), if it still waits."""
        if not self._is_left:
            self._yielded.release()

    def hand_over(
        self, request: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
    ) -> Any:
        """Wait, in the replica's thread, for the merge function's answer."""
        # A replica that unwind() has left running: nobody would answer its request.
        if self._ends:
            raise _Unwind
        self.request = request
        self._tell()
        self._resume.acquire()
        if self._ends:
            raise _Unwind
        if self.thrown is not None:
            error, self.thrown = self.thrown, None
            raise error
        return self.answer

    def unwind(self) -> None:
        """End a replica that waits; one that still runs is left to end at its next hand-over.

        It runs only if Ctrl-C interrupted run(), which must not wait for the user's code then.
        """
        self._ends = True
        if self._runs:
            self._is_left = True
            if self._resume.locked():
                self._resume.release()  # it may have been about to be resumed
        elif self._has_started:
            # The user's code may catch _Unwind and hand over again, which raises it once more.
            while not self.done:
                self.step()


class ReplicaThreads:
    """One call of ``run`` on a rank with several replicas."""

    def __init__(self, replicas: Sequence[ReplicaContext]) -> None:
        self._contexts = replicas
        self._replicas: list[_Replica] = []

    def run(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        """Return what `fn` returned on each replica, in replica order."""
        for index, replica in enumerate(self._contexts):
            call = _bind(fn, select_replica(index, args), select_replica(index, dict(kwargs)))
            self._replicas.append(_Replica(self, replica, call))
        try:
            while not all(replica.done for replica in self._replicas):
                self._round()
        except BaseException:
            for started in self._replicas:
                started.unwind()
            raise
        return [replica.result for replica in self._replicas]

    def hand_over(
        self,
        replica: ReplicaContext,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Take part in a merge call; called in the replica's thread."""
        return self._replicas[replica.local_index].hand_over((fn, args, kwargs))

    def _round(self) -> None:
        for replica in self._replicas:
            replica.step()
            if replica.error is not None:
                raise replica.error
        waiting = [replica.done for replica in self._replicas].count(False)
        if waiting:
            self._merge(waiting)

    def _merge(self, waiting: int) -> None:
        try:
            answer = self._answer(waiting)
        except Exception as error:  # noqa: BLE001 - every replica gets it, where it waits
            for replica in self._replicas:
                replica.thrown = error
            return
        for index, replica in enumerate(self._replicas):
            replica.answer = select_replica(index, answer)

    def _answer(self, waiting: int) -> Any:
        if waiting < len(self._replicas):
            self._complain()
        requests = [replica.request for replica in self._replicas if replica.request is not None]
        functions = [_code(fn) for fn, _, _ in requests]
        if any(function is not functions[0] for function in functions):
            self._complain()
        # Equal objects stay one, others become PerReplica, as in what run() returns.
        args = regroup([args for _, args, _ in requests])
        kwargs = regroup([kwargs for _, _, kwargs in requests])
        strategy = self._contexts[0].strategy
        with context.enter(Mode(strategy, None)):
            return requests[0][0](strategy, *args, **kwargs)

    def _complain(self) -> None:
        rows = []
        for one in self._replicas:
            where = (
                "has ended"
                if one.done or one.request is None
                else f"is in {_name(one.request[0])}"
            )
            rows.append(f"replica {one.replica.replica_id_in_sync_group} {where}")
        raise ContextError(
            f"the replicas of this rank do different things: {'; '.join(rows)}; every replica must"
            " make the same collective and merge calls in the same order"
        )


def _closed_lock() -> threading.Lock:
    """Return a lock that waits for another thread's release: the cheapest way to hand over."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def _bind(fn: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[], Any]:
    return lambda: fn(*args, **kwargs)


def _code(fn: Any) -> Any:
    """Return what functions that every replica makes anew, such as lambdas, have in common."""
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__code__", fn)


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__qualname__", fn)).lstrip("_")
