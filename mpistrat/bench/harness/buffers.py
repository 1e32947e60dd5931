"""Allocate the buffers of a row: private, registered with a backend, or shared."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import partial

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.problem import Empty, Problem, make_problem
from mpistrat.bench.harness.session import Session

__all__ = ["Memory", "make_problems"]


class Memory(Enum):
    """Where buffers come from.

    Registered and shared memory belong to one communicator, so each backend has buffers of its
    own, and the peers use those of the first. Only results can be shared by the ranks of a node;
    peers then write theirs elsewhere, because they may use that memory before the end.
    """

    PRIVATE = "np.empty"
    REGISTERED = "communicator.empty(shape, dtype)"
    SHARED = "communicator.empty(shape, dtype, shared=True), for the result"

    @property
    def is_registered(self) -> bool:
        """Whether a backend knows the buffers."""
        return self is not Memory.PRIVATE

    @property
    def is_shared(self) -> bool:
        """Whether the ranks of a node have one result."""
        return self is Memory.SHARED


def make_problems(
    task: Task, session: Session, memory: Memory
) -> tuple[dict[str, Problem], Problem]:
    """Return each backend's problem by name, and the peers' problem. **Collective.**"""
    if not memory.is_registered:
        problem = make_problem(task)
        return dict.fromkeys(session.backends, problem), problem
    problems = {}
    # Allocating is collective: every rank goes through the backends in this order.
    for name, communicator in session.backends.items():
        result = _empty(communicator, memory.is_shared)
        problems[name] = make_problem(task, _empty(communicator, False), result)
    first = next(iter(problems.values()))
    if memory.is_shared and first.recv is not None:
        return problems, replace(first, recv=np.zeros_like(first.recv))
    return problems, first


def _empty(communicator: Communicator, is_shared: bool) -> Empty:
    return partial(communicator.empty, shared=is_shared)
