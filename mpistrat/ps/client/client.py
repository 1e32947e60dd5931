"""`Client`: requests of a member to the parameter servers, pulls and pushes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np

from mpistrat import config
from mpistrat.errors import ClosedError, ContextError, MpistratError, PeerLostError
from mpistrat.ps.messages import (
    Change,
    ChangeSeveral,
    Drop,
    Flush,
    Message,
    Question,
    Several,
)
from mpistrat.ps.transport.encoding import Encoded, encoded
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.ps.transport.push_buffers import OutgoingRows, PushBuffers
from mpistrat.ps.transport.stream import Stream

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """The connections of a chief or a worker to all ps.

    Parameters
    ----------
    endpoint
        Of the member whose connections are used.

    Notes
    -----
    Any thread may call it. To one ps everything goes in order, so a member reads what it has
    changed before. A change is sent without waiting (:meth:`tell`); that it was made, and was
    right, is known after the next answer or :meth:`flush`.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._connections = [_Connection(endpoint.streams[one]) for one in endpoint.roster.ps]
        self._push_buffers = [
            PushBuffers(str(endpoint.me), partial(self.ask, ps), partial(self.ask, ps, Flush()))
            for ps in range(len(self._connections))
        ]
        # Appending takes no lock: a finalizer may run in a thread that holds a connection's lock.
        self._dropped: deque[tuple[int, int]] = deque()

    @property
    def num_ps(self) -> int:
        """Number of parameter servers."""
        return len(self._connections)

    def tell(self, ps: int, change: Change) -> None:
        """Send a change to a ps; returns when it has been sent, not when it has been made."""
        connection = self._connections[ps]
        with connection.held():
            connection.has_told = True
            connection.send(change)

    def outgoing_rows(
        self, ps: int, count: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> OutgoingRows:
        """Return memory for rows of a shape, which a ps is to be told of."""
        self._connections[ps].check()
        return self._push_buffers[ps].outgoing_rows(count, shape, dtype)

    def unmap_buffers(self) -> None:
        """Give back memory that this member and the ps have mapped; idempotent."""
        for buffers in self._push_buffers:
            buffers.close()

    def drop_later(self, ps: int, key: int) -> None:
        """Let go of a variable at the next request; for finalizers, which may run at any time."""
        self._dropped.append((ps, key))

    def _drop(self) -> None:
        with suppress(IndexError):  # another thread may take them, too
            while True:
                ps, key = self._dropped.popleft()
                self.tell(ps, Drop(key))

    def ask(self, ps: int, question: Question[T]) -> T:
        """Return what a ps answers.

        Raises
        ------
        Exception
            What it, or a change that was sent before, raised there.
        CommunicationTimeoutError
            No answer came within ``MPISTRAT_TIMEOUT``.
        PeerLostError
            The ps has ended.
        ClosedError, ContextError
            The strategy was closed, or this process was forked from the member.
        """
        if self._dropped:
            self._drop()
        connection = self._connections[ps]
        with connection.held():
            connection.send(question)
            answer: T = connection.answer()
            return answer

    def ask_all(self, questions: Sequence[tuple[int, Question[T]]]) -> list[T]:
        """Return the answers to several questions, by one message to each ps that gets any.

        Parameters
        ----------
        questions
            Each with the index of its ps.
        """
        if len(questions) == 1:
            return [self.ask(*questions[0])]
        grouped = _grouped(questions)
        answers = self.ask_each({ps: Several(found) for ps, found in grouped.items()})
        remaining = {ps: iter(found) for ps, found in answers.items()}
        return [next(remaining[ps]) for ps, _ in questions]

    def tell_all(self, changes: Sequence[tuple[int, Change]]) -> None:
        """Send several changes, by one message to each ps that gets any."""
        if len(changes) == 1:
            self.tell(*changes[0])
            return
        for ps, found in _grouped(changes).items():
            self.tell(ps, ChangeSeveral(found))

    def ask_each(self, questions: Mapping[int, Question[T]]) -> dict[int, T]:
        """Ask several ps at once, one question each; return the answers by ps."""
        found = [(ps, self._connections[ps]) for ps in sorted(questions)]
        with ExitStack() as stack:
            # Locks are taken in the order of the ps, so that two threads which ask several ps
            # cannot each hold a lock that the other one waits for.
            for _, connection in found:
                stack.enter_context(connection.held())
            # All requests go out before the first answer is waited for, so the ps work at the same
            # time.
            for ps, connection in found:
                connection.send(questions[ps])
            return _all_or_error({ps: connection.outcome() for ps, connection in found})

    def ask_all_ps(self, question: Question[T]) -> list[T]:
        """Ask all ps the same at once; return their answers in their order."""
        return [*self.ask_each(dict.fromkeys(range(self.num_ps), question)).values()]

    def settle(self, ps: int) -> None:
        """Wait until what was sent to a ps is done, before what it keeps is read in place."""
        if self._connections[ps].has_told:
            self.ask(ps, Flush())

    def flush(self) -> None:
        """Wait until all changes that were sent are made; raise what went wrong with one."""
        # Raises after close(), and in a forked process, even where nothing was told.
        self._connections[0].check()
        told = [ps for ps, connection in enumerate(self._connections) if connection.has_told]
        if told:
            self.ask_each(dict.fromkeys(told, Flush()))


def _grouped(messages: Sequence[tuple[int, Message]]) -> dict[int, list[Encoded]]:
    """Return messages, encoded, by their ps."""
    grouped: dict[int, list[Encoded]] = {}
    for ps, message in messages:
        grouped.setdefault(ps, []).append(encoded(message))
    return grouped


def _all_or_error(outcomes: Mapping[int, tuple[list[Exception], Any]]) -> dict[int, Any]:
    """Return the answers; or raise the first error, with the others as its cause."""
    errors = [error for found, _ in outcomes.values() for error in found]
    if len(errors) > 1:
        others = "; ".join(f"{type(error).__name__}: {error}" for error in errors[1:])
        raise errors[0] from MpistratError(f"it is not the only one: {others}")
    if errors:
        raise errors[0]
    return {ps: answer for ps, (_, answer) in outcomes.items()}


class _Connection:
    """The way to one ps; used by one thread at a time, who holds it."""

    def __init__(self, stream: Stream) -> None:
        self._lock = threading.Lock()
        self.has_told = False
        self._stream = stream
        self._number = 0
        self._pid = os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads off within the block; raise in a process that may not use it.

        It checks before it waits for the lock: in a forked process nobody may ever release that.
        """
        self.check()
        with self._lock:
            yield

    def check(self) -> None:
        """Raise unless this process may use it, and it is open."""
        if os.getpid() != self._pid:
            raise ContextError(
                f"process {os.getpid()} was forked from process {self._pid}, whose connections to"
                " the ps it cannot use; read variables before the fork and hand over the values"
            )
        if self._stream.fileno() < 0:
            raise ClosedError("this strategy was closed; make a new one")

    def send(self, message: Message) -> None:
        self.check()
        self._number += 1
        try:
            self._stream.send((self._number, encoded(message)), config.timeout_s())
        except PeerLostError as error:
            raise self._lost(error) from error

    def answer(self) -> Any:
        """Return the answer to what was sent last, or raise an error of those since then."""
        return _all_or_error({0: self.outcome()})[0]

    def outcome(self) -> tuple[list[Exception], Any]:
        """Return errors and the answer; answers that nobody took are dropped."""
        while True:
            try:
                number, errors, result = self._stream.receive(config.timeout_s(), "an answer")
            except PeerLostError as error:
                raise self._lost(error) from error
            # A wait that timed out or was interrupted leaves its answer in the stream, with a
            # lower number.
            if number == self._number:
                break
        # A ps carries out the messages of a member in order: all earlier changes are made by now.
        self.has_told = False
        return errors, result

    @staticmethod
    def _lost(error: PeerLostError) -> PeerLostError:
        return PeerLostError(
            f"{error}, and its variables with it; end the job and start it again from the last"
            " checkpoint",
            error.rank,
        )
