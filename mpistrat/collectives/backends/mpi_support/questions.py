"""Messages between machines that ask a rank for its last call and stack (stacks.py)."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["MpiQuestions"]

_QUESTION_TAG, _ANSWER_TAG = 0x7001, 0x7002


class MpiQuestions:
    """Questions to ranks, and answers; any thread may use them.

    Parameters
    ----------
    comm
        An MPI communicator that carries them beside other messages.
    mpi
        The module ``mpi4py.MPI``.
    """

    def __init__(self, comm: Any, mpi: Any) -> None:
        self._mpi, self._comm = mpi, comm
        self._sent: list[tuple[Any, bytes]] = []
        self._lock = threading.Lock()  # between its use and the end of the communicator

    @property
    def is_open(self) -> bool:
        """Whether the communicator can be used."""
        return self._comm is not None

    def ask(self, rank: int, question: bytes) -> None:
        """Send a question."""
        self._send(rank, question, _QUESTION_TAG)

    def answer(self, rank: int, answer: bytes) -> None:
        """Send an answer."""
        self._send(rank, answer, _ANSWER_TAG)

    def receive_question(self) -> tuple[int, bytes] | None:
        """Return who asked, and what; None if nobody did."""
        return self._receive(_QUESTION_TAG)

    def receive_answer(self) -> tuple[int, bytes] | None:
        """Return who answered, and what; None if nobody did."""
        return self._receive(_ANSWER_TAG)

    def _send(self, rank: int, data: bytes, tag: int) -> None:
        with self._lock:
            if self._comm is not None:
                request = self._comm.Isend([data, self._mpi.BYTE], rank, tag)
                self._sent.append((request, data))

    def _receive(self, tag: int) -> tuple[int, bytes] | None:
        with self._lock:
            status = self._mpi.Status()
            if self._comm is None or self._mpi.Is_finalized():
                return None
            message = self._comm.Improbe(self._mpi.ANY_SOURCE, tag, status)
            if message is None:
                return None
            buffer = bytearray(status.Get_count(self._mpi.BYTE))
            message.Recv([buffer, self._mpi.BYTE])
            return status.Get_source(), bytes(buffer)

    def close(self) -> None:
        """Use the communicator no more: it is about to be freed."""
        with self._lock:
            self._comm = None
