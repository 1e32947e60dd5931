"""The protocol of a backend: it moves and reduces flat arrays, and no more.

Shapes, axes, dtypes, fingerprints, deadlines and errors are settled above it, and what ranks tell
each other besides the data is its control (control.py), so a backend stays small. Every transfer
is a generator of *requests*: it starts, yields the request, and is resumed once
``request.Test()`` was true. That makes the same code serve blocking and asynchronous calls, and
leaves every wait (and its deadline) to one loop, in progress/engine.py.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.collectives.backends.fast_path import FastCalls

__all__ = [
    "HEAD_BYTES",
    "Backend",
    "BegunHeader",
    "Capabilities",
    "HasRelease",
    "Header",
    "HeadersDiffer",
    "Late",
    "LateRequest",
    "QueuedRequest",
    "Request",
    "SleepingRequest",
    "Steps",
    "Ticket",
]

HEAD_BYTES = 32
"""Length of the four words of a header (checking/headers.py), without the payload behind them.

MPISTRAT_HEAD_BYTES of kernels/include/mpistrat/calls.h.
"""


class Request(Protocol):
    """A transfer under way; mpi4py's requests are such objects."""

    def Test(self) -> bool:  # noqa: N802 - MPI's spelling, so that MPI requests fit as they are
        """Make progress; return True once the transfer is complete."""
        ...


# Classes to inherit, neither protocols nor abstract: the engine asks for them in each wait, and
# `isinstance` takes five to fifty times as long with those.
class SleepingRequest:
    """A request that can wait by itself: the engine lets it, instead of asking again and again."""

    __slots__ = ()

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Make progress; return True once the transfer is complete."""
        return self.sleep(0.0)

    def sleep(self, seconds: float) -> bool:
        """Do the same, and let up to `seconds` pass, without the GIL, while it waits."""
        raise NotImplementedError(f"{type(self).__name__} has to say how it waits")


class Late(NamedTuple):
    """What a transfer waits for, and the ranks that keep it waiting as far as that is known."""

    what: str
    ranks: tuple[int, ...]


class LateRequest:
    """A request that finds out what it waits for, where the hosts of all ranks have come."""

    __slots__ = ()

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Make progress; return True once the transfer is complete."""
        raise NotImplementedError(f"{type(self).__name__} has to say whether it is complete")

    def late(self) -> Late:
        """Return what it waits for. **Local.** Asked once, when the transfer is given up."""
        raise NotImplementedError(f"{type(self).__name__} has to say what it waits for")


class QueuedRequest(SleepingRequest):
    """The request of a transfer that its backend begins by itself (see `Ticket`)."""

    __slots__ = ()

    @property
    def holds_others(self) -> bool:
        """Whether those behind it wait for ``FastCalls.resume``, now that it is over."""
        raise NotImplementedError(f"{type(self).__name__} has to say what waits for it")


Steps: TypeAlias = Generator[Request, None, Any]
"""A collective under way: yields what it waits for, returns its result."""


class HeadersDiffer(Exception):  # noqa: N818 - no error yet: the gate finds out what it means
    """Raised by a transfer that carried headers, and found that they differ."""


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do here.

    Attributes
    ----------
    devices
        Kinds of memory it takes, of ``"CPU"`` and ``"GPU"``.
    dtypes
        Names of the dtypes that it reduces; half types are widened above it (reduction_ops.py).
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
        MPI libraries leave open is settled above backends without it (reduction_ops.py,
        operations/exact_reduction.py).
    carries_headers
        Whether a transfer can carry the headers of the call that it is part of: such a backend
        takes one more argument with each transfer, ``header=`` (a `Header`), and brings the
        control whose headers these are.
    """

    devices: tuple[str, ...]
    dtypes: frozenset[str]
    ops: frozenset[str]
    in_place: bool
    asynchronous: bool
    processes: bool = True
    exact: bool = False
    carries_headers: bool = False


class Ticket(NamedTuple):
    """What its backend shows of a call and records, when it counts it and begins its transfer.

    Attributes
    ----------
    digest, extra
        What stands in its header (checking/headers.py).
    nbytes, texts
        What is recorded of it (health/recorder.py).
    holds
        Whether none begins after it until ``FastCalls.resume``: there is more to do for its call.
    is_queued
        Whether the backend begins it by itself, as soon as the one before it is over.
    """

    digest: int
    extra: int
    nbytes: int
    texts: tuple[int, int, int, int]
    holds: bool = False
    is_queued: bool = False


class BegunHeader(NamedTuple):
    """What is known of a transfer that the kernels have begun, with its header.

    Attributes
    ----------
    status
        Its MpistratStatus (kernels/include/mpistrat/calls.h).
    request
        Of one that the backend carries on with by itself; else None.
    """

    status: int
    request: Any = None


Header: TypeAlias = bool | Ticket | BegunHeader
"""Whether a transfer carries this rank's header, which is filled in.

With a `Ticket` the backend counts the call and fills the header in when it begins the transfer;
where that is by itself, the transfer's request is a `QueuedRequest`. With a `BegunHeader` the
transfer has begun already, and is gone on with.
"""


class Backend(Protocol):
    """A carrier of collectives over one private communicator.

    Attributes
    ----------
    fast
        The state of calls that take a shorter way, or None.

    All arrays are one-dimensional, C-contiguous, native-endian and on the host; `counts` are
    elements by rank. All ranks have agreed on the call before a transfer starts. ``recv`` and
    ``send`` are None on ranks where MPI ignores them. `op` is a name of reduction_ops.py.
    """

    name: str
    rank: int
    size: int
    fast: FastCalls | None

    def capabilities(self) -> Capabilities:
        """Tell what this backend can do here."""
        ...

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Make memory that later transfers use without copies; return an array of bytes.

        With `is_shared`, the ranks of a node have one range together.
        """
        ...

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce `send` over all ranks into every rank's `recv` (may be the same array)."""
        ...

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce lists of arrays of one dtype as one array; asked of those that carry headers.

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
        """Free what the backend holds but its control; all ranks have agreed to it."""
        ...


@runtime_checkable
class HasRelease(Protocol):
    """A backend with something to give up after an error, when it cannot be closed."""

    def release(self) -> None:
        """Give up what this rank can give up alone. Idempotent; also called after ``close``."""
        ...
