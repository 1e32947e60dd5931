"""The protocol of a backend's control: what ranks tell each other besides the data.

A backend moves data (base.py). Whether all ranks make the same call, who has given up and who has
died is found out by its *control*: headers of calls, notices, a watch over processes, and
questions to ranks that are missing. MPI has all of it (mpi_support/control.py), so a new backend
brings none and is given that of MPI; one that can do a part of it better replaces that part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mpistrat.collectives.backends.base import Header, Request
from mpistrat.system.liveness.probe import Probe
from mpistrat.types import Array

__all__ = ["Control", "HasControl", "HeaderExchange", "Notices", "Questions"]


class HeaderExchange(Protocol):
    """Show every rank the header of every rank's call (checking/headers.py)."""

    def open(self, nbytes: int) -> tuple[Array, Array]:
        """Set the exchange up; called once. **Collective.**

        Returns
        -------
        tuple
            This rank's header (uint8, shape (nbytes,)), to be filled in before each ``post``, and
            the table of all ranks' headers (uint8, shape (size, nbytes)).
        """
        ...

    def post(self, header: Header = True) -> Request:
        """Show this rank's header to all ranks; when complete, the table holds every rank's.

        **Collective**, and never more than one at a time. A header that is still to be filled in
        (`Ticket`) is given to a backend that carries headers only.
        """
        ...


class Notices(Protocol):
    """Short messages besides the collectives. All methods are **Local**."""

    def announce(self, notice: bytes) -> None:
        """Send a notice (at most 2 kB) to every other rank; never blocks."""
        ...

    def heard(self) -> tuple[int, bytes] | None:
        """Return the next notice that came in as (rank, notice), or None."""
        ...

    def mark_lost(self, rank: int) -> None:
        """Send nothing more to a rank whose process is known to have ended."""
        ...


class Questions(Protocol):
    """Messages that ask a rank for its last call and stack; any thread may use them."""

    @property
    def is_open(self) -> bool:
        """Whether they can still be sent."""
        ...

    def ask(self, rank: int, question: bytes) -> None:
        """Send a question."""
        ...

    def answer(self, rank: int, answer: bytes) -> None:
        """Send an answer."""
        ...

    def receive_question(self) -> tuple[int, bytes] | None:
        """Return who asked, and what; None if nobody did."""
        ...

    def receive_answer(self) -> tuple[int, bytes] | None:
        """Return who answered, and what; None if nobody did."""
        ...


@dataclass(frozen=True)
class Control:
    """The control of one communicator; ``dataclasses.replace`` puts in a better part.

    Attributes
    ----------
    headers, notices, liveness
        Its parts.
    questions
        How to ask ranks on other machines; None where that is impossible.
    close
        Frees it, after the backend was closed; all ranks have agreed to it.
    """

    headers: HeaderExchange
    notices: Notices
    liveness: Probe
    questions: Questions | None
    close: Callable[[], None]


@runtime_checkable
class HasControl(Protocol):
    """A backend that brings its own control; any other is given MPI's (registry.py)."""

    control: Control
