"""The sides of a row: backends of mpistrat, peers, and a copy of the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.problem import Problem
from mpistrat.bench.peers.base import Peer

__all__ = ["Label", "Side", "backend_call", "backend_side", "memcpy_side", "peer_sides"]


@dataclass(frozen=True)
class Label:
    """The name and kind of a side; it outlives the buffers.

    Attributes
    ----------
    text
        The name in the table.
    kind
        ``"backend"``, ``"peer"`` or ``"bound"``.
    backend
        The carrier: the name of mpistrat's backend, or of the peer.
    op
        What it calls, or what it is the bound of.
    is_base
        Whether the other sides are shown as multiples of this one.
    """

    text: str
    kind: str
    backend: str
    op: str
    is_base: bool = False


@dataclass(frozen=True)
class Side:
    """A contender of a row: a backend, a peer or a bound, with its call.

    Attributes
    ----------
    label
        Its name and kind.
    call
        Does it once.
    is_right
        Does it once on fresh buffers, and tells whether this rank's answer is right.
    """

    label: Label
    call: Callable[[], object]
    is_right: Callable[[], bool]


def backend_side(
    name: str,
    communicator: Communicator,
    problem: Problem,
    note: str = "",
    is_base: bool = False,
    *,
    has_out: bool = True,
) -> Side:
    """Return the side of a backend that was asked for as `name`; its label ends with `note`.

    With `has_out` results go to the problem's memory, else to new arrays.
    """
    carrier = communicator.backend.name
    text = (name if name == carrier else f"{name} ({carrier})") + note
    call = backend_call(communicator, problem, has_out)
    label = Label(text, "backend", carrier, problem.task.op, is_base)
    return Side(label, call, partial(problem.is_right, call))


def backend_call(
    communicator: Communicator, problem: Problem, has_out: bool = True
) -> Callable[[], object]:
    """Return mpistrat's own call: a bound method and its arguments, nothing in between."""
    task, send = problem.task, problem.send
    method: Callable[..., object] = getattr(communicator, task.op)
    if task.op == "barrier":
        return method
    if task.op == "allreduce_many":
        return partial(method, problem.arrays, task.reduction)
    arguments = (send, task.reduction) if task.is_reduction else (send,)
    return partial(method, *arguments, out=problem.recv if has_out else None)


def peer_sides(peers: Iterable[Peer], problem: Problem) -> list[Side]:
    """Return the sides of the peers that can solve the problem."""
    sides = []
    for peer in peers:
        call = peer.function(problem)
        if call is not None:
            label = Label(peer.name, "peer", peer.name, problem.task.op, is_base=True)
            sides.append(Side(label, call, partial(problem.is_right, call)))
    return sides


def memcpy_side(task: Task) -> Side:
    """Return the bound of an all-reduce: each rank copies as many bytes between private buffers.

    All ranks copy at the same time, so they share the memory's bandwidth as an all-reduce does.
    """
    # Written, so that no page of either buffer is the kernel's page of zeros.
    source = np.arange(task.nbytes, dtype=np.uint8)
    target = np.zeros_like(source)
    copy = partial(np.copyto, target, source)

    def is_right() -> bool:
        copy()
        return np.array_equal(source, target)

    return Side(Label("memcpy", "bound", "memcpy", task.op, is_base=True), copy, is_right)
