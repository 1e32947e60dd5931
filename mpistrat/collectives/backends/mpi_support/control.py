"""Control by MPI: headers by an all-gather, notices by messages, a watch by UDP."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mpistrat import config
from mpistrat.cluster import mpi as cluster_mpi
from mpistrat.collectives.backends.base import Header, Request, Steps
from mpistrat.collectives.backends.control import Control
from mpistrat.collectives.backends.mpi_support.questions import MpiQuestions
from mpistrat.collectives.backends.shared_memory import bootstrap
from mpistrat.system.liveness import udp
from mpistrat.system.liveness.probe import Probe
from mpistrat.system.liveness.udp_probe import UdpProbe, deaf, watched
from mpistrat.system.liveness.ulfm import excused
from mpistrat.types import Array

__all__ = ["MpiWatch", "mpi_control"]

_NOTICE_TAG = 1
_NOTICE_BYTES = 2048


def mpi_control(comm: Any, mpi: Any, watch: MpiWatch) -> Control:
    """Return the control of an mpi4py communicator that nobody else uses. **Local.**

    Parameters
    ----------
    comm
        The communicator, which is freed when the control is closed.
    mpi
        The module ``mpi4py.MPI``.
    watch
        Over the processes of `comm`; it starts with the exchange of headers if not before.
    """
    headers = _MpiHeaders(comm, mpi, watch)
    # The thread that answers questions uses MPI while the program does something else.
    may_thread = mpi.Query_thread() == mpi.THREAD_MULTIPLE
    questions = MpiQuestions(comm, mpi) if may_thread else None

    def close() -> None:
        if questions is not None:
            questions.close()
        headers.close()
        comm.Free()

    return Control(headers, _MpiNotices(comm, mpi, watch), watch, questions, close)


class MpiWatch(Probe):
    """The processes of a communicator, some of which this rank watches (udp_probe.py)."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._rank, self._size = comm.rank, comm.size
        self._places: list[int] = []
        self._watch: UdpProbe | None = None

    def start(self, timeout: float, near: Collection[int] = ()) -> None:
        """Watch the processes of the other ranks but `near`. **Collective.**"""
        if self._size == 1:
            return
        # A place has 128 bits, for which MPI has no integer.
        mine = np.array(divmod(udp.here(), 1 << 64), np.uint64)
        table = np.empty(2 * self._size, np.uint64)
        with bootstrap.kept(mine, table):
            bootstrap.run(self._exchange(mine, table), timeout, self._comm)
        self._places = [high << 64 | low for high, low in table.reshape(-1, 2).tolist()]
        mine_to_watch = watched(self._places, self._rank, near)
        self._watch = UdpProbe({rank: self._places[rank] for rank in mine_to_watch})

    def _exchange(self, mine: Array, table: Array) -> Steps:
        yield self._comm.Iallgather(mine, table)

    def ended(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes this one watches, and which have ended."""
        return () if self._watch is None else self._watch.ended(wait)

    def mark_ended(self, rank: int) -> None:
        """Take note that another rank knows this one's process to have ended."""
        if self._places:
            udp.mark_ended(self._places[rank])

    def listeners(self) -> list[int]:
        """Return whom to send notices: MPICH crashes if that goes to a process that has ended."""
        if self._watch is not None:
            self._watch.refresh()
        out = deaf(self._places, self._rank, not cluster_mpi.outlives_ranks())
        return [rank for rank in range(self._size) if rank not in {self._rank, *out}]


class _MpiHeaders:
    """A persistent all-gather: the cheapest exchange there is in MPI."""

    def __init__(self, comm: Any, mpi: Any, watch: MpiWatch) -> None:
        self._comm, self._byte, self._watch = comm, mpi.BYTE, watch
        self._gather: Any = None

    def open(self, nbytes: int) -> tuple[Array, Array]:
        """Set it up, and the watch over the ranks: nothing else does where MPI shows headers."""
        self._watch.start(config.valid_or(config.timeout_s, config.DEFAULT_TIMEOUT_S))
        mine = np.zeros(nbytes, np.uint8)
        table = np.zeros((self._comm.size, nbytes), np.uint8)
        self._buffers = ([mine, nbytes, self._byte], [table, nbytes, self._byte])
        try:
            self._gather = self._comm.Allgather_init(*self._buffers)
        except NotImplementedError:  # MPI before version 4
            self._gather = None
        return mine, table

    def post(self, header: Header = True) -> Request:
        """Show this rank's header."""
        if self._gather is None:
            request: Request = self._comm.Iallgather(*self._buffers)
            return request
        self._gather.Start()
        started: Request = self._gather
        return started

    def close(self) -> None:
        """Free the request."""
        if self._gather is not None:
            self._gather.Free()


class _MpiNotices:
    """Messages from rank to rank; MPI's errors about dead ones are excused (ulfm.py)."""

    def __init__(self, comm: Any, mpi: Any, watch: MpiWatch) -> None:
        self._comm, self._mpi, self._watch = comm, mpi, watch
        self._sent: deque[tuple[Any, bytes]] = deque()

    def announce(self, notice: bytes) -> None:
        """Send the notice to all who live; it is small enough to leave without their help."""
        for rank in self._watch.listeners():
            with excused(self._comm, self._mpi.Exception):
                request = self._comm.Isend([notice, self._mpi.BYTE], rank, _NOTICE_TAG)
                self._sent.append((request, notice))
        while self._sent:
            is_over = True  # also if its receiver has died
            with excused(self._comm, self._mpi.Exception):
                is_over = self._sent[0][0].Test()
            if not is_over:
                return
            self._sent.popleft()

    def heard(self) -> tuple[int, bytes] | None:
        """Receive a notice, if one is there."""
        status = self._mpi.Status()
        message = None
        with excused(self._comm, self._mpi.Exception):
            # A matched probe: no other thread can receive that message before `Recv` does.
            message = self._comm.Improbe(self._mpi.ANY_SOURCE, _NOTICE_TAG, status)
        if message is None:
            return None
        buffer = bytearray(_NOTICE_BYTES)
        source = status.Get_source()
        message.Recv([buffer, self._mpi.BYTE], status)
        return source, bytes(buffer[: status.Get_count(self._mpi.BYTE)])

    def mark_lost(self, rank: int) -> None:
        """Send that rank nothing more."""
        self._watch.mark_ended(rank)
