"""The chief's thread that receives results, and notices workers that have ended."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat import config
from mpistrat.coordinator.chief.scheduled_call import WorkerState
from mpistrat.errors import PeerLostError
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.ps.transport.roles import Member

__all__ = ["Ears", "Listener"]


@dataclass(frozen=True)
class Ears:
    """What is done with what the thread hears; all of it is called in that thread.

    Attributes
    ----------
    lock
        Of the streams to workers.
    on_ring
        Called when somebody rang.
    on_results
        Gets a worker and its messages.
    on_worker_lost, on_member_lost
        Get who has ended: a worker; a ps or an evaluator.
    on_failure
        Gets an error of the thread, which ends with it.
    after_turn
        Called after every turn, without the lock.
    """

    lock: threading.Lock
    on_ring: Callable[[], None]
    on_results: Callable[[WorkerState, list[Any]], None]
    on_worker_lost: Callable[[WorkerState], None]
    on_member_lost: Callable[[Member], None]
    on_failure: Callable[[BaseException], None]
    after_turn: Callable[[], None]


class Listener:
    """A thread that listens to all other members for a chief, and sends on what was posted.

    Parameters
    ----------
    endpoint
        The chief's.
    workers
        To whom it listens.
    ears
        What it does.
    """

    def __init__(self, endpoint: Endpoint, workers: Sequence[WorkerState], ears: Ears) -> None:
        self._endpoint, self._ears = endpoint, ears
        self._workers = {worker.stream.fileno(): worker for worker in workers}
        self._is_over = False
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="mpistrat-dispatch", daemon=True)
        self._thread.start()

    def ring(self) -> None:
        """Let the thread take a turn now."""
        try:
            self._bell.send(b".")
        except OSError as error:
            # It rings already, or has stopped.
            if not isinstance(error, BlockingIOError) and not self._is_over:
                raise

    def stop(self) -> None:
        """End the thread."""
        self._is_over = True
        self.ring()
        self._thread.join(config.timeout_s())
        if not self._thread.is_alive():
            self._bell.close()
            self._rung.close()

    def _run(self) -> None:
        try:
            self._take_turns()
        except BaseException as error:
            self._ears.on_failure(error)  # else those who wait would do so for good
            raise

    def _take_turns(self) -> None:
        poll = select.poll()
        for fd in (*self._workers, self._rung.fileno()):
            poll.register(fd, select.POLLIN)
        roster = self._endpoint.roster
        others = {
            self._endpoint.streams[one].fileno(): one for one in roster.ps + roster.evaluators
        }
        for fd in others:
            poll.register(fd, select.POLLRDHUP)
        while not self._is_over:
            for fd, _ in poll.poll():
                if fd == self._rung.fileno():
                    self._rung.recv(4096)
                    self._ears.on_ring()
                elif fd in others:
                    poll.unregister(fd)
                    self._ears.on_member_lost(others[fd])
                elif not self._take_results(self._workers[fd]):
                    poll.unregister(fd)
                    del self._workers[fd]
            self._ears.after_turn()
            with self._ears.lock:
                self._go_on_sending(poll)

    def _take_results(self, worker: WorkerState) -> bool:
        """Take in the results that a worker has sent; return whether it is still connected."""
        try:
            messages = worker.stream.take()
        except PeerLostError:
            self._ears.on_worker_lost(worker)
            return False
        self._ears.on_results(worker, messages)
        return True

    def _go_on_sending(self, poll: select.poll) -> None:
        for fd, worker in self._workers.items():
            try:
                worker.stream.flush()
            except PeerLostError:
                pass  # the poll tells it too
            wants_out = select.POLLOUT if worker.stream.has_unsent else 0
            poll.modify(fd, select.POLLIN | wants_out)
