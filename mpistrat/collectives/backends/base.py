"""The protocol of a backend: it moves and reduces flat arrays, and no more.

Shapes, axes, dtypes, fingerprints, deadlines and errors are settled above it, so a backend stays
small. Every operation is a generator of *requests*: it starts a transfer, yields the request, and
is resumed once ``request.Test()`` was true. That makes the same code serve blocking and
asynchronous calls, and leaves every wait (and its deadline) to one loop in engine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from mpistrat.types import Array

__all__ = ["HEAD_BYTES", "Ahead", "Backend", "Capabilities", "LinesDiffer", "Request", "Steps"]

HEAD_BYTES = 32
"""Length of the four words of a gate line (gate.py), without the payload behind them.

MPISTRAT_HEAD_BYTES of kernels/include/mpistrat/calls.h.
"""


class Request(Protocol):
    """A transfer under way; mpi4py's requests are such objects."""

    def Test(self) -> bool:  # noqa: N802 - MPI's spelling, so that MPI requests fit as they are
        """Make progress; return True once the transfer is complete.

        A request may also have ``sleep(seconds)``, which does the same, but lets up to that time
        pass, without the GIL, while nothing can be done; and ``detach()``, after which the
        transfer advances by itself.
        """
        ...


Steps: TypeAlias = Generator[Request, None, Any]
"""A collective under way: yields what it waits for, returns its result."""


class LinesDiffer(Exception):  # noqa: N818 - no error yet: the gate finds out what it means
    """Raised by a transfer that carried the gate's lines, and found that they differ."""


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
    exact
        Whether reductions are NumPy's down to the last case: half types accumulate in float32 and
        round once, integers wrap, NaN wins minima and maxima, and ``"mean"`` is an op. What
        MPI libraries leave open is settled above backends without it (reductions.py,
        nan_rules.py).
    checks
        Whether a transfer can carry the gate's lines itself (see ``guards_next``).
    """

    devices: tuple[str, ...]
    dtypes: frozenset[str]
    ops: frozenset[str]
    in_place: bool
    asynchronous: bool
    processes: bool = True
    exact: bool = False
    checks: bool = False


class Ahead(NamedTuple):
    """How a transfer shows itself that its backend begins, as soon as the one before it is over.

    Attributes
    ----------
    digest, extra
        What stands in its line (gate.py).
    nbytes, texts
        What is recorded of it (recorder.py).
    holds
        Whether none begins after it until ``FastCalls.resume``: there is more to do for its call.
    """

    digest: int
    extra: int
    nbytes: int
    texts: tuple[int, int, int, int]
    holds: bool


class FastCalls(Protocol):
    """The state of calls that a backend can make without the gate's and the engine's Python.

    Attributes
    ----------
    is_ready
        Whether such calls may be made: the communicator is open and sound, and nothing is queued.
    label
        A number for what the calls are made for (recorder.py).
    has_digests
        Whether calls are compared between the ranks.
    may_queue
        Whether transfers can be left to the backend (see ``Backend.guards_next``).
    is_busy
        Whether one is under way (or any other call of the backend).
    is_under_way
        Whether one is under way.
    fast_calls
        How many were made.
    """

    is_ready: bool
    label: int
    may_queue: bool

    @property
    def is_busy(self) -> bool: ...

    @property
    def is_under_way(self) -> bool: ...

    has_digests: bool

    @property
    def fast_calls(self) -> int: ...

    def allreduce(
        self,
        general: Callable[..., Any],
        digest: Callable[[Array, str], int],
        finish: Callable[[int, Array, str, Array], Any],
        lose: Callable[[int, BaseException, Array, Array], None],
    ) -> Callable[..., Any]:
        """Return a callable in place of ``communicator.allreduce`` or ``allreduce_soon``.

        Parameters
        ----------
        general
            That method; called for all that is not the common case.
        digest
            Gives the fingerprint of a call from its array and op.
        finish
            Ends a call that did not end soon, or well, from its status, array, op and result.
        lose
            Told of each error of `finish` before it is raised, which may be an interrupt that
            kept `finish` from doing anything: its call's number, the error, array and result.
        """
        ...

    def natively(
        self, callable_: Callable[..., Any], array: Array, op: str
    ) -> tuple[int, int, int] | None:
        """Return how native code makes the calls of what :meth:`allreduce` has returned.

        None if it cannot; see ``Communicator.allreduce_natively``. Of a call that is not over then
        `callable_` has a method ``end`` (status, sequence, array, op, out).
        """
        ...

    def resume(self) -> None:
        """Let transfers begin again that wait after one that holds, or differs between ranks."""
        ...

    def drop(self) -> None:
        """Forget the queued calls that have not begun, and no longer advance what has."""
        ...

    def record_in(self, ring: Any) -> None:
        """Record the calls in `ring` (recorder.py) from now on; None: no more."""
        ...

    def carry_on(self, status: int, *arrays: Array) -> Steps:
        """Go on with a call that did not end soon, or whose lines differ; keeps its arrays."""
        ...


class Backend(Protocol):
    """A carrier of collectives over one private communicator.

    Attributes
    ----------
    fast
        The state of calls that take a shorter way, or None.
    guards_next
        Set before a transfer that is to carry the gate's line; its backend has to say `checks`.
        With an `Ahead`, the backend begins it by itself and fills in the line; the request of such
        a transfer has `holds_others`, which tells at its end whether `FastCalls.resume` is due.

    All arrays are one-dimensional, C-contiguous, native-endian and on the host; `counts` are
    elements by rank. All ranks have agreed on the call before a transfer starts. ``recv`` and
    ``send`` are None on ranks where MPI ignores them. `op` is one of the names in reductions.py.
    """

    name: str
    rank: int
    size: int
    fast: FastCalls | None
    guards_next: bool | Ahead

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

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Make memory that later transfers use without copies; return an array of bytes.

        With `is_shared`, the ranks of a node have one range together.
        """
        ...

    def lost(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes are known to have ended.

        `wait` is another number for each wait, as those that last are looked into.
        """
        ...

    def mark_lost(self, rank: int) -> None:
        """Take note that another rank knows this one's process to have ended."""
        ...

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce `send` over all ranks into every rank's `recv` (may be the same array)."""
        ...

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce lists of arrays of one dtype as one array; for backends that `checks`.

        All are in C order, of any shape; `recv` may be as many arrays, or one for all.
        """
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
        self,
        send: Array,
        recv: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        most: int | None = None,
    ) -> Steps:
        """Send piece i of `send` to rank i, for every i.

        `most` is the longest piece of any rank, if all know it.
        """
        ...

    def close(self) -> None:
        """Free what the backend holds; all ranks have agreed to it."""
        ...
