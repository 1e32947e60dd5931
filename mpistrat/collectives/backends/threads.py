"""The reference backend: ranks are threads, and every operation is one plain step.

Each operation is the same exchange: every rank posts a copy of what it sends, and once all have
posted, each computes what it receives. It is also the backend of a single process without MPI.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Capabilities, Header, Late, LateRequest, Steps
from mpistrat.collectives.backends.control import Control
from mpistrat.collectives.backends.fast_path import FastCalls
from mpistrat.collectives.backends.shared_memory.registered import private_memory
from mpistrat.tables.reduction_ops import DTYPES, OPS, combine
from mpistrat.types import Array

__all__ = ["ThreadComm", "ThreadWorld", "ThreadsBackend"]


class ThreadWorld:
    """What `size` threads share: rounds of posts, and mail."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.mail: list[deque[tuple[int, bytes]]] = [deque() for _ in range(size)]
        self._lock = threading.Lock()
        self._worlds: dict[int, ThreadWorld] = {}
        self._rounds: dict[int, dict[int, Any]] = {}
        self._readers: dict[int, int] = {}

    def comms(self) -> list[ThreadComm]:
        """Return the communicators of all ranks."""
        return [ThreadComm(self, rank) for rank in range(self.size)]

    def duplicate(self, number: int) -> ThreadWorld:
        """Return the `number`-th private copy, the same object for all ranks."""
        with self._lock:
            return self._worlds.setdefault(number, ThreadWorld(self.size))

    def post(self, number: int, rank: int, value: Any) -> None:
        """Put `value` in round `number`."""
        with self._lock:
            self._rounds.setdefault(number, {})[rank] = value

    def is_full(self, number: int) -> bool:
        """Tell whether all ranks have posted in round `number`."""
        # Without the lock: the round stays until this rank, too, has read it.
        return len(self._rounds[number]) == self.size

    def missing(self, number: int) -> tuple[int, ...]:
        """Return the ranks that have not posted in round `number`."""
        with self._lock:
            return tuple(rank for rank in range(self.size) if rank not in self._rounds[number])

    def read(self, number: int) -> list[Any]:
        """Return the posts of a full round by rank; the last reader drops the round."""
        with self._lock:
            posts = self._rounds[number]
            self._readers[number] = self._readers.get(number, 0) + 1
            if self._readers[number] == self.size:
                del self._rounds[number], self._readers[number]
        return [posts[rank] for rank in range(self.size)]


class ThreadComm:
    """The handle of one thread's rank, given as ``comm=`` to strategies and communicators."""

    def __init__(self, world: ThreadWorld, rank: int) -> None:
        self.world = world
        self.rank = rank
        self._duplicates = 0

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.world.size

    def duplicate(self) -> ThreadComm:
        """Return a private copy; the n-th copies of all ranks belong together."""
        self._duplicates += 1
        return ThreadComm(self.world.duplicate(self._duplicates), self.rank)


class _Round(LateRequest):
    """The request of one exchange."""

    def __init__(self, world: ThreadWorld, number: int) -> None:
        self._world, self._number = world, number

    def Test(self) -> bool:  # noqa: N802 - see Request
        return self._world.is_full(self._number)

    def late(self) -> Late:
        """Name the ranks that have not posted."""
        missing = self._world.missing(self._number)
        return Late(f"ranks without a post: {list(missing)}", missing)


class ThreadsBackend:
    """Collectives between threads (see the module)."""

    name = "threads"
    fast: FastCalls | None = None

    def __init__(self, comm: ThreadComm) -> None:
        self._world = comm.world
        self.rank, self.size = comm.rank, comm.world.size
        self._round = 0
        # In a world of its own, since headers are numbered by rounds apart from those of the data.
        self.control = _control(comm.duplicate())

    @classmethod
    def unavailable(cls, comm: Any) -> str | None:
        """Return why `comm` does not fit."""
        if comm is None or isinstance(comm, ThreadComm):
            return None
        return f"comm is a {type(comm).__name__}; expected a ThreadComm, or None for one process"

    @classmethod
    def open(cls, comm: ThreadComm | None, timeout: float) -> ThreadsBackend:
        """Make the backend of this thread's rank."""
        return cls((comm or ThreadComm(ThreadWorld(1), 0)).duplicate())

    def capabilities(self) -> Capabilities:
        """Everything, since NumPy does it."""
        # A mean is a sum here, divided above all backends that are not exact (reduction_ops.py).
        ops = frozenset(OPS) - {"mean"}
        return Capabilities(
            ("CPU",), DTYPES, ops, in_place=True, asynchronous=False, processes=False
        )

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Return private memory: there is no other."""
        return private_memory(self, nbytes, is_shared)

    def _exchange(self, value: Any) -> Steps:
        # Each rank counts for itself: all post the same rounds in the same order.
        self._round += 1
        number = self._round
        # A copy, as all callers give: this rank may change its array once its own call is over.
        self._world.post(number, self.rank, value)
        yield _Round(self._world, number)
        return self._world.read(number)

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce in rank order."""
        posts = yield from self._exchange(send.copy())
        recv[:] = combine(op, posts)

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce one by one."""
        for one, total in zip(send, recv, strict=True):
            yield from self.allreduce(one, total, op)

    def reduce(self, send: Array, recv: Array | None, op: str, root: int) -> Steps:
        """Reduce in rank order at the root."""
        posts = yield from self._exchange(send.copy())
        if self.rank == root and recv is not None:
            recv[:] = combine(op, posts)

    def bcast(self, buffer: Array, root: int) -> Steps:
        """Copy the root's post."""
        posts = yield from self._exchange(buffer.copy() if self.rank == root else None)
        buffer[:] = posts[root]

    def allgather(self, send: Array, recv: Array, counts: Sequence[int]) -> Steps:
        """Concatenate all posts."""
        posts = yield from self._exchange(send.copy())
        np.concatenate(posts, out=recv)

    def gather(
        self,
        send: Array,
        recv: Array | None,
        counts: Sequence[int],
        root: int,
    ) -> Steps:
        """Concatenate all posts at the root."""
        posts = yield from self._exchange(send.copy())
        if self.rank == root and recv is not None:
            np.concatenate(posts, out=recv)

    def scatter(self, send: Array | None, recv: Array, counts: Sequence[int], root: int) -> Steps:
        """Cut out this rank's piece of the root's post."""
        posts = yield from self._exchange(None if send is None else send.copy())
        recv[:] = _piece(posts[root], counts, self.rank)

    def reduce_scatter(self, send: Array, recv: Array, counts: Sequence[int], op: str) -> Steps:
        """Reduce in rank order and cut out this rank's piece."""
        posts = yield from self._exchange(send.copy())
        recv[:] = _piece(combine(op, posts), counts, self.rank)

    def alltoall(
        self,
        send: Array,
        recv: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        most: int | None = None,
    ) -> Steps:
        """Concatenate the pieces of all posts that are meant for this rank."""
        posts = yield from self._exchange((send.copy(), list(send_counts)))
        np.concatenate([_piece(sent, counts, self.rank) for sent, counts in posts], out=recv)

    def close(self) -> None:
        """Drop the shared state."""


def _control(comm: ThreadComm) -> Control:
    """Return the control of threads that have `comm` for nothing else."""
    return Control(_ThreadHeaders(comm), _ThreadNotices(comm), _OneProcess(), None, lambda: None)


class _ThreadHeaders:
    """Headers as posts of rounds of their own."""

    def __init__(self, comm: ThreadComm) -> None:
        self._world, self._rank = comm.world, comm.rank
        self._round = 0

    def open(self, nbytes: int) -> tuple[Array, Array]:
        """Make the memory."""
        self._mine = np.zeros(nbytes, np.uint8)
        self._table = np.zeros((self._world.size, nbytes), np.uint8)
        return self._mine, self._table

    def post(self, header: Header = True) -> _HeaderRound:
        """Show this rank's header."""
        self._round += 1
        self._world.post(self._round, self._rank, self._mine.copy())
        return _HeaderRound(self._world, self._round, self._table)


class _HeaderRound(_Round):
    """The exchange of headers: fills the table when it is complete."""

    def __init__(self, world: ThreadWorld, number: int, table: Array) -> None:
        super().__init__(world, number)
        self._table = table

    def Test(self) -> bool:  # noqa: N802 - see Request
        is_full = super().Test()
        if is_full:
            # Read once: the engine tests no more after True, and the last reader drops the round.
            np.stack(self._world.read(self._number), out=self._table)
        return is_full


class _ThreadNotices:
    """Notices as mail."""

    def __init__(self, comm: ThreadComm) -> None:
        # No lock: appending and popping are atomic, and each mail has one reader.
        self._mail, self._rank = comm.world.mail, comm.rank

    def announce(self, notice: bytes) -> None:
        """Put the notice in everyone's mail."""
        for rank, mail in enumerate(self._mail):
            if rank != self._rank:
                mail.append((self._rank, notice))

    def heard(self) -> tuple[int, bytes] | None:
        """Take the next notice from the mail."""
        mail = self._mail[self._rank]
        return mail.popleft() if mail else None

    def mark_lost(self, rank: int) -> None:
        """Do nothing: no rank is lost alone."""


class _OneProcess:
    """The ranks are one process, so none has ended while another asks."""

    def ended(self, wait: int = 0) -> Sequence[int]:
        """Return none."""
        return ()


def _piece(array: Array, counts: Sequence[int], rank: int) -> Array:
    start = sum(counts[:rank])
    return array[start : start + counts[rank]]
