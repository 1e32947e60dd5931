"""What a backend of collectives is: it moves and reduces flat arrays, and no more.

Shapes, axes, dtypes, fingerprints, deadlines and errors are settled above it, so a backend stays
small. Every operation is a generator of *requests*: it starts a transfer, yields the request, and
is resumed once ``request.Test()`` was true. That makes the same code serve blocking and
asynchronous calls, and leaves every wait (and its deadline) to one loop in work.py.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mpistrat.types import Array

__all__ = ["Backend", "Capabilities", "Request", "Steps"]


class Request(Protocol):
    """A transfer under way; mpi4py's requests are such objects."""

    def Test(self) -> bool:  # noqa: N802 - MPI's spelling, so that MPI requests fit as they are
        """Make progress; return True once the transfer is complete."""
        ...


Steps: TypeAlias = Generator[Request, None, Any]
"""A collective under way: yields what it waits for, returns its result."""


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do here.

    Attributes
    ----------
    devices
        Kinds of memory it takes, of ``"CPU"`` and ``"GPU"``.
    dtypes
        Names of the dtypes that it reduces; half types are widened above it (reductions.py).
    ops
        Reductions.
    in_place
        Whether ``recv`` may be ``send``.
    asynchronous
        Whether transfers advance while Python computes.
    processes
        Whether ranks are processes, whose end the others must learn of.
    """

    devices: tuple[str, ...]
    dtypes: frozenset[str]
    ops: frozenset[str]
    in_place: bool
    asynchronous: bool
    processes: bool = True


class Backend(Protocol):
    """A carrier of collectives over one private communicator.

    All arrays are one-dimensional, C-contiguous, native-endian and on the host; `counts` are
    elements by rank. All ranks have agreed on the call before a transfer starts. ``recv`` and
    ``send`` are None on ranks where MPI ignores them. `op` is one of the names in reductions.py.
    """

    name: str
    rank: int
    size: int

    def capabilities(self) -> Capabilities:
        """Tell what this backend can do here."""
        ...

    def open_gate(self, nbytes: int) -> tuple[Array, Array]:
        """Set up the exchange of gate lines; called once.

        Returns
        -------
        tuple
            This rank's line (uint8, shape (nbytes,)), to be filled in before each ``post``, and
            the table of all ranks' lines (uint8, shape (size, nbytes)).
        """
        ...

    def post(self) -> Request:
        """Show this rank's line to all ranks; when complete, the table holds every rank's.

        **Collective**, and never more than one at a time.
        """
        ...

    def announce(self, notice: bytes) -> None:
        """Send a short out-of-band notice (at most 2 kB) to every other rank; never blocks."""
        ...

    def heard(self) -> tuple[int, bytes] | None:
        """Return the next notice that came in as (rank, notice), or None."""
        ...

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce `send` over all ranks into every rank's `recv` (may be the same array)."""
        ...

    def reduce(self, send: Array, recv: Array | None, op: str, root: int) -> Steps:
        """Reduce `send` over all ranks into the root's `recv`."""
        ...

    def bcast(self, buffer: Array, root: int) -> Steps:
        """Copy the root's `buffer` into every rank's."""
        ...

    def allgather(self, send: Array, recv: Array, counts: Sequence[int]) -> Steps:
        """Concatenate all ranks' `send` in rank order into every rank's `recv`."""
        ...

    def gather(self, send: Array, recv: Array | None, counts: Sequence[int], root: int) -> Steps:
        """Concatenate all ranks' `send` in rank order into the root's `recv`."""
        ...

    def scatter(self, send: Array | None, recv: Array, counts: Sequence[int], root: int) -> Steps:
        """Cut the root's `send` into `counts` and give each rank its piece."""
        ...

    def reduce_scatter(self, send: Array, recv: Array, counts: Sequence[int], op: str) -> Steps:
        """Reduce `send` over all ranks and give each rank its piece of the result."""
        ...

    def alltoall(
        self, send: Array, recv: Array, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> Steps:
        """Send piece i of `send` to rank i, for every i."""
        ...

    def close(self) -> None:
        """Free what the backend holds; all ranks have agreed to it."""
        ...
