"""Inputs of every operation and its result, as closed forms in rank and size.

Element i of what rank r sends is 1 + (r + i) mod 7: small, so that sums are exact, and with a
period that no chunk size divides, so that a chunk in the wrong place is seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mpistrat.tables.reduction_ops import combine, narrow, result_dtype, widened
from mpistrat.types import Array

__all__ = ["OPS", "Task", "expected", "inputs"]

_PERIOD = 7
_PERIODS = 4096  # at a time: np.resize makes a list of the pieces that it joins

OPS = (
    *("allreduce", "reduce", "reduce_scatter", "bcast"),
    *("allgather", "gather", "scatter", "alltoall", "barrier"),
)
_REDUCTIONS = ("allreduce", "allreduce_many", "reduce", "reduce_scatter")
_BY_PIECE = ("reduce_scatter", "allgather", "gather", "scatter", "alltoall")


@dataclass(frozen=True)
class Task:
    """One operation on one rank.

    Attributes
    ----------
    op
        One of `OPS`, or ``allreduce_many``.
    dtype
        Of what is sent.
    reduction
        A name that `Communicator.allreduce` takes; counts where `op` reduces.
    wanted_bytes
        Size of the larger one of the two buffers; rounded down to whole elements, and to equal
        pieces for all ranks.
    rank, size
        This rank, and how many there are. The root is rank 0.
    in_place
        Whether the answer goes where the input was, as a broadcast's always does.
    """

    op: str
    dtype: np.dtype
    reduction: str
    wanted_bytes: int
    rank: int
    size: int
    in_place: bool = False

    @property
    def is_reduction(self) -> bool:
        """Whether the operation reduces."""
        return self.op in _REDUCTIONS

    @property
    def piece(self) -> int:
        """Elements of a rank's piece, or of the whole where there are no pieces."""
        if self.op == "barrier":
            return 0
        return max(1, self.wanted_bytes // self.dtype.itemsize // self._pieces)

    @property
    def count(self) -> int:
        """Elements of the whole."""
        return self.piece * self._pieces

    @property
    def _pieces(self) -> int:
        return self.size if self.op in _BY_PIECE else 1

    @property
    def nbytes(self) -> int:
        """Size of the whole, in bytes."""
        return self.count * self.dtype.itemsize

    @property
    def send_count(self) -> int:
        """Elements that this rank gives."""
        return self.piece if self.op in ("allgather", "gather") else self.count

    @property
    def recv_count(self) -> int:
        """Elements that this rank gets."""
        return self.piece if self.op in ("reduce_scatter", "scatter") else self.count

    @property
    def result_dtype(self) -> np.dtype:
        """Dtype of the answer."""
        return result_dtype(self.reduction, self.dtype) if self.is_reduction else self.dtype

    @property
    def has_input(self) -> bool:
        """Whether this rank takes part with a buffer of its own to send (or to broadcast into)."""
        return self.rank == 0 or self.op != "scatter"

    @property
    def has_answer(self) -> bool:
        """Whether this rank gets anything."""
        return self.op != "barrier" and (self.rank == 0 or self.op not in ("reduce", "gather"))


def inputs(task: Task) -> Array | None:
    """Return this rank's input; None for a broadcast's ranks other than the root."""
    if task.op == "bcast" and task.rank != 0:
        return None
    return _tile(_period(task.rank, task.dtype), 0, task.send_count)


def expected(task: Task) -> Array | None:
    """Return this rank's expected answer; None where it gets none."""
    if not task.has_answer:
        return None
    start = task.rank * task.piece
    if task.is_reduction:
        return _tile(_reduced(task), start if task.op == "reduce_scatter" else 0, task.recv_count)
    if task.op in ("bcast", "scatter"):
        first = start if task.op == "scatter" else 0
        return _tile(_period(0, task.dtype), first, task.recv_count)
    first = start if task.op == "alltoall" else 0
    return _joined(_tile(_period(r, task.dtype), first, task.piece) for r in range(task.size))


def _period(rank: int, dtype: np.dtype) -> Array:
    values = (rank + np.arange(_PERIOD)) % _PERIOD
    return (values % 2 if dtype.kind == "b" else values + 1).astype(dtype)


def _reduced(task: Task) -> Array:
    name = task.reduction
    rows = np.stack([_period(r, task.dtype) for r in range(task.size)])
    total = combine("sum" if name == "mean" else name, rows.astype(widened(name, task.dtype)))
    return narrow(name, total, task.result_dtype, task.size)


def _tile(period: Array, start: int, count: int) -> Array:
    return np.resize(np.tile(np.roll(period, -(start % _PERIOD)), _PERIODS), count)


def _joined(pieces: Iterable[Array]) -> Array:
    return np.concatenate(list(pieces))
