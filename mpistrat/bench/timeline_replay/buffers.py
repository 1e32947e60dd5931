"""Make each kind of call with buffers that all calls of a dtype share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.node_memory import check_node_memory
from mpistrat.bench.harness.problem import Empty, make_problem
from mpistrat.bench.harness.sides import backend_call
from mpistrat.bench.options import parse_dtype
from mpistrat.bench.timeline_replay.recorded_call import Kind
from mpistrat.types import Array

__all__ = ["Replayed", "check_memory", "make_calls", "task_of"]

_OBJECTS = ("allgather_object", "bcast_object")
_COPIES = 2  # of the buffers: what backends keep while they pack and reduce, expected answers


@dataclass(frozen=True)
class Replayed:
    """How a kind of call is made here.

    Attributes
    ----------
    call
        Makes it once.
    is_right
        Makes it once, and tells whether this rank's answer is right.
    """

    call: Callable[[], object]
    is_right: Callable[[], bool]


def task_of(kind: Kind, rank: int, size: int) -> Task:
    """Return the task that a kind of call is on this number of ranks. **Local.**"""
    gathers = kind.op in ("allgather", "gather")
    nbytes = kind.nbytes * size if gathers else kind.nbytes
    return Task(kind.op, parse_dtype(kind.dtype), kind.reduction or "sum", nbytes, rank, size)


def check_memory(kinds: Iterable[Kind], communicator: Communicator) -> None:
    """Raise on all ranks if a node has not enough memory for the calls. **Collective.**

    Raises
    ------
    UsageError
        The message has what is needed and what there is.
    """
    kinds = list(kinds)
    largest = max(kinds, key=lambda kind: kind.nbytes)
    what = (
        "the buffers of the recorded calls, the largest of which is"
        f" {largest.op} of {largest.nbytes} bytes,"
    )
    # The most of any rank: roots need more than others.
    needed = communicator.allreduce(np.array(_COPIES * _needed(kinds, communicator)), "max")
    check_node_memory(what, int(needed), "record smaller calls", communicator)


def make_calls(kinds: Iterable[Kind], communicator: Communicator) -> dict[Kind, Replayed]:
    """Return how each kind of call is made on this communicator. **Local.**"""
    kinds = list(kinds)
    buffers = _Buffers(_tasks(kinds, communicator))
    return {kind: _replayed(kind, communicator, buffers) for kind in kinds}


class _Buffers:
    """Memory for one call at a time: of each dtype one buffer to send and one to receive.

    By dtype, because the bytes of small whole numbers of one dtype may be numbers of another one
    with which a processor is slow.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._counts: dict[tuple[str, np.dtype], int] = {}
        for task in tasks:
            self._ask("send", task.dtype, task.send_count)
            self._ask("receive", task.result_dtype, task.recv_count)
        self._buffers: dict[tuple[str, np.dtype], Array] = {}

    @property
    def nbytes(self) -> int:
        """Size of all of them."""
        return sum(dtype.itemsize * count for (_, dtype), count in self._counts.items())

    def empty(self, use: str) -> Empty:
        """Return a function that gives out the first elements of the buffer of a use."""

        def take(shape: tuple[int], dtype: np.dtype) -> Array:
            key = use, dtype
            if key not in self._buffers:
                self._buffers[key] = np.ones(self._counts[key], dtype)
            return self._buffers[key][: math.prod(shape)]

        return take

    def _ask(self, use: str, dtype: np.dtype, count: int) -> None:
        self._counts[use, dtype] = max(self._counts.get((use, dtype), 0), count)


def _replayed(kind: Kind, communicator: Communicator, buffers: _Buffers) -> Replayed:
    if kind.op == "barrier":
        return Replayed(communicator.barrier, lambda: True)
    if kind.op in _OBJECTS:
        return _of_object(kind, communicator)
    task = task_of(kind, communicator.rank, communicator.size)
    problem = make_problem(task, buffers.empty("send"), buffers.empty("receive"))
    if kind.op == "allreduce_many" and problem.send is not None:
        problem = replace(problem, arrays=[problem.send])
    call = backend_call(communicator, problem)
    return Replayed(call, lambda: problem.is_right(call))


def _of_object(kind: Kind, communicator: Communicator) -> Replayed:
    data = bytes(kind.nbytes)
    if kind.op == "bcast_object":
        mine = data if communicator.rank == 0 else None
        return Replayed(
            lambda: communicator.bcast_object(mine),
            lambda: communicator.bcast_object(mine) == data,
        )
    return Replayed(
        lambda: communicator.allgather_object(data),
        lambda: communicator.allgather_object(data) == [data] * communicator.size,
    )


def _tasks(kinds: Iterable[Kind], communicator: Communicator) -> Iterator[Task]:
    """Return the tasks of the kinds that have arrays."""
    for kind in kinds:
        if kind.op not in (*_OBJECTS, "barrier"):
            yield task_of(kind, communicator.rank, communicator.size)


def _needed(kinds: Iterable[Kind], communicator: Communicator) -> int:
    """Return the bytes of a rank's buffers and objects."""
    kinds = list(kinds)
    objects = [kind.nbytes for kind in kinds if kind.op in _OBJECTS]
    # An object is kept for each kind; those of all ranks are there at once.
    held = sum(objects) + communicator.size * max(objects, default=0)
    return held + _Buffers(_tasks(kinds, communicator)).nbytes
