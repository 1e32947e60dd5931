"""The chief's thread that receives results, and notices workers that have ended."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Sequence
from typing import Protocol

from mpistrat import config
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.coordinator.messages import Results, decoded_results
from mpistrat.errors import PeerLostError
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.ps.transport.roles import Member

__all__ = ["EventHandler", "Listener"]


class EventHandler(Protocol):
    """What is done with what a `Listener` notices; its thread calls all of it.

    Attributes
    ----------
    lock
        Of the streams to workers.
    """

    lock: threading.Lock

    def on_ring(self) -> None:
        """Do what another thread rang for."""

    def on_results(self, worker: WorkerState, results: Sequence[Results]) -> None:
        """Take in what a worker has sent."""

    def on_worker_lost(self, worker: WorkerState) -> None:
        """Go on without a worker that has ended, or end."""

    def on_member_lost(self, member: Member) -> None:
        """Go on without a ps or an evaluator that has ended, or end."""

    def on_failure(self, error: BaseException) -> None:
        """End with an error of the thread, which ends with it."""

    def after_events(self) -> None:
        """Do what is due after some events; called without the lock."""


class Listener:
    """A thread that listens to all other members for a chief, and sends on what was posted.

    Parameters
    ----------
    endpoint
        The chief's.
    workers
        To whom it listens.
    handler
        Is told of what it notices.
    """

    def __init__(
        self, endpoint: Endpoint, workers: Sequence[WorkerState], handler: EventHandler
    ) -> None:
        self._endpoint, self._handler = endpoint, handler
        self._workers = {worker.stream.fileno(): worker for worker in workers}
        self._is_over = False
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="mpistrat-dispatch", daemon=True)
        self._thread.start()

    def ring(self) -> None:
        """Wake the thread, which calls ``on_ring`` and goes on sending."""
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
        # A thread that still polls could take the descriptors' next users for these sockets.
        if not self._thread.is_alive():
            self._bell.close()
            self._rung.close()

    def _run(self) -> None:
        try:
            self._listen()
        except BaseException as error:
            self._handler.on_failure(error)  # else callers would wait for good
            raise

    def _listen(self) -> None:
        poll = select.poll()
        for fd in (*self._workers, self._rung.fileno()):
            poll.register(fd, select.POLLIN)
        roster = self._endpoint.roster
        others = {
            self._endpoint.streams[one].fileno(): one for one in roster.ps + roster.evaluators
        }
        # Only ends of connections: the answers of the ps are read by the threads that have asked.
        for fd in others:
            poll.register(fd, select.POLLRDHUP)
        while not self._is_over:
            for fd, _ in poll.poll():
                if fd == self._rung.fileno():
                    self._rung.recv(4096)
                    self._handler.on_ring()
                elif fd in others:
                    poll.unregister(fd)
                    self._handler.on_member_lost(others[fd])
                elif not self._take_results(self._workers[fd]):
                    poll.unregister(fd)
                    del self._workers[fd]
            self._handler.after_events()
            with self._handler.lock:
                self._go_on_sending(poll)

    def _take_results(self, worker: WorkerState) -> bool:
        """Take in the results that a worker has sent; return whether it is still connected."""
        try:
            # Without the lock: no other thread receives, and a stream's two directions are apart.
            messages = worker.stream.take()
        except PeerLostError:
            self._handler.on_worker_lost(worker)
            return False
        self._handler.on_results(worker, [decoded_results(one) for one in messages])
        return True

    def _go_on_sending(self, poll: select.poll) -> None:
        for fd, worker in self._workers.items():
            try:
                worker.stream.flush()
            except PeerLostError:
                pass  # the poll reports it, too
            wants_out = select.POLLOUT if worker.stream.has_unsent else 0
            poll.modify(fd, select.POLLIN | wants_out)
