"""The case ``fused``: ResNet-50's 161 gradients as one list, against one flat array."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np
import typer

from mpistrat import Communicator
from mpistrat.bench.harness.calibration import Budget
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.problem import Problem, make_problem
from mpistrat.bench.harness.resnet50_shapes import gradient_shapes
from mpistrat.bench.harness.row import Heading, Row, run_row
from mpistrat.bench.harness.session import Session, open_session
from mpistrat.bench.harness.sides import Side, backend_side, memcpy_side, peer_sides
from mpistrat.bench.options import (
    Backends,
    Json,
    Peers,
    Rounds,
    Seconds,
    parse_backends,
    told_to_the_user,
)
from mpistrat.bench.peers import parse_peers
from mpistrat.bench.rows_table import report
from mpistrat.strategy.reduction.shared_sums import SharedSums
from mpistrat.types import Array

__all__ = ["command", "problems"]

_DTYPE = np.dtype(np.float32)


def command(
    backends: Backends = "auto",
    peers: Peers = "",
    rounds: Rounds = 11,
    seconds: Seconds = 5.0,
    json: Json = None,
) -> None:
    """Time allreduce_many of ResNet-50's 161 gradients (102 MB) against one flat allreduce.

    Peers that take no lists sum one flat array. NumPy asks for huge pages for that one, but not
    for most of the 161; NUMPY_MADVISE_HUGEPAGE=0 gives both sides small ones.
    """
    with told_to_the_user():
        names = parse_backends(backends), parse_peers(peers)
    budget = Budget(rounds, seconds)
    with open_session(*names) as session:
        rank = session.communicator.rank
        is_right = report(((_row(session, budget) for _ in range(1)),), rank, json)
    if not is_right:
        raise typer.Exit(1)


def problems(rank: int, size: int) -> tuple[Problem, Problem]:
    """Return the problem of the list, and that of one flat array with the same content."""
    shapes = gradient_shapes()
    nbytes = sum(math.prod(shape) for shape in shapes) * _DTYPE.itemsize
    flat = make_problem(Task("allreduce", _DTYPE, "sum", nbytes, rank, size))
    arrays = _cut(np.asarray(flat.send), shapes)
    return replace(flat, task=replace(flat.task, op="allreduce_many"), arrays=arrays), flat


def _cut(flat: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
    ends = list(accumulate(math.prod(shape) for shape in shapes))
    parts = np.split(flat, ends[:-1])
    # Copies, so that each array has memory of its own, as gradients have.
    return [part.reshape(shape).copy() for part, shape in zip(parts, shapes, strict=True)]


def _optimizers_side(name: str, communicator: Communicator, problem: Problem) -> Side:
    """Return the side of an optimizer's sums, kept once a node where that is possible."""
    call = partial(SharedSums(communicator).sum, problem.arrays)
    label = backend_side(name, communicator, problem, note=", as optimizers sum").label
    return Side(label, call, partial(problem.is_right, call))


def _row(session: Session, budget: Budget) -> Row:
    many, flat = problems(session.communicator.rank, session.communicator.size)
    sides: list[Side] = []
    for name, one in session.backends.items():
        sides.append(backend_side(name, one, many))
        sides.append(_optimizers_side(name, one, many))
        sides.append(backend_side(name, one, flat, note=", flat", is_base=True))
    sides += peer_sides([peer for peer in session.peers if peer.takes_lists], many)
    sides += peer_sides([peer for peer in session.peers if not peer.takes_lists], flat)
    sides.append(memcpy_side(flat.task))
    return run_row(Heading("fused", many.task), sides, [many, flat], session, budget)
