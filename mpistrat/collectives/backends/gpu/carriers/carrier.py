"""The protocol of what carries arrays between the GPUs of one set of ranks.

A carrier is a data backend (base.py) for flat, contiguous arrays of CuPy: it has the same
transfers, each of them carried out on the transfer stream (streams.py), which is the current one.
Half types are accumulated in float32 and rounded once, NaN wins minima and maxima, ``"mean"`` is
an op, and integers wrap, as NumPy has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.tuning import GpuTuning

__all__ = ["Carrier"]


class Carrier(Protocol):
    """Moves and reduces arrays on GPUs; **Collective** but for three methods.

    Attributes
    ----------
    widens_halves
        Whether sums, products and means of half types travel as float32.
    """

    name: str
    widens_halves: bool

    def open(self) -> str | None:
        """Make what is this rank's own; return why that failed, or None. **Local.**"""
        ...

    def meet(self) -> Steps:
        """Take in what is the other ranks', once all have opened their own.

        Returns why that failed on this rank, or None.
        """
        ...

    def allocate(self, nbytes: int) -> Steps:
        """Make memory that later transfers use without copies, where this carrier can do that.

        Returns an array of bytes; all ranks get one, or none.
        """
        ...

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Backend.allreduce`."""
        ...

    def reduce(self, send: Any, recv: Any | None, op: str, root: int) -> Steps:
        """See `Backend.reduce`."""
        ...

    def bcast(self, buffer: Any, root: int) -> Steps:
        """See `Backend.bcast`."""
        ...

    def allgather(self, send: Any, recv: Any, counts: Sequence[int]) -> Steps:
        """See `Backend.allgather`."""
        ...

    def gather(self, send: Any, recv: Any | None, counts: Sequence[int], root: int) -> Steps:
        """See `Backend.gather`."""
        ...

    def scatter(self, send: Any | None, recv: Any, counts: Sequence[int], root: int) -> Steps:
        """See `Backend.scatter`."""
        ...

    def reduce_scatter(self, send: Any, recv: Any, counts: Sequence[int], op: str) -> Steps:
        """See `Backend.reduce_scatter`."""
        ...

    def alltoall(
        self,
        send: Any,
        recv: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        longest: int,
    ) -> Steps:
        """See `Backend.alltoall`; `longest` is the longest piece of any rank."""
        ...

    def tune(self, tuning: GpuTuning) -> None:
        """Use other sizes, at most those it was opened with; none is left open. **Local.**"""
        ...

    def leave(self) -> Steps:
        """Let go of what belongs to other ranks; nothing is transferred after that. **Local.**"""
        ...

    def abort(self) -> None:
        """Give up the transfers under way, which may wait for ranks that are lost. **Local.**"""
        ...

    def close(self) -> None:
        """Free what is this rank's own, once all ranks have left. **Local.**"""
        ...
