"""A measured problem: an operation on given buffers, with a known result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mpistrat.bench.harness import expected_results
from mpistrat.bench.harness.expected_results import Task
from mpistrat.types import Array

__all__ = ["Empty", "Problem", "make_problem"]

Empty: TypeAlias = Callable[[tuple[int], np.dtype], Array]
"""Makes an array of a shape and a dtype."""


@dataclass(frozen=True)
class Problem:
    """A task and its buffers on this rank.

    Attributes
    ----------
    task
        What is asked for.
    send
        What this rank gives; None where it gives nothing.
    recv
        Where this rank's answer goes: `send` itself in place, None where there is no answer.
    arrays
        For ``allreduce_many``: what `send` holds, as separate arrays.
    """

    task: Task
    send: Array | None
    recv: Array | None
    arrays: Sequence[Array] = ()

    def is_right(self, call: Callable[[], object]) -> bool:
        """Fill the buffers, call a side and compare its answer. **Collective** as `call` is.

        The answer is what `call` returns, or the content of `recv` if that is None.
        """
        expected = expected_results.expected(self.task)
        # Anew for each side: the buffer may hold the right answer of the one before.
        self._fill(expected)
        answer = call()
        if expected is None:
            return True
        return _equal(self.recv if answer is None else _flat(answer), expected)

    def settle(self) -> None:
        """Zero a buffer that is summed in place, which would overflow in many calls. **Local.**"""
        if self.recv is self.send is not None and self.task.is_reduction:
            self.send.fill(0)

    def _fill(self, expected: Array | None) -> None:
        if self.recv is not None and expected is not None:
            np.equal(expected, 0, out=self.recv, casting="unsafe")  # differs from it everywhere
        _give(self.task, self.send)


def make_problem(task: Task, empty: Empty = np.empty, empty_recv: Empty | None = None) -> Problem:
    """Allocate the buffers of a task on this rank, and fill the input.

    **Collective** as `empty` is: all ranks allocate alike, also those that need nothing.
    """
    if task.op == "barrier":
        return Problem(task, None, None)
    # Also on ranks that send nothing: registering memory is collective.
    memory = empty((task.send_count,), task.dtype)
    send = memory if task.has_input else None
    _give(task, send)
    if not task.in_place:
        memory = (empty_recv or empty)((task.recv_count,), task.result_dtype)
        memory.fill(0)  # no page is touched for the first time later
    return Problem(task, send, memory if task.has_answer else None)


def _give(task: Task, send: Array | None) -> None:
    given = expected_results.inputs(task)
    if send is not None and given is not None:
        np.copyto(send, given)


def _flat(answer: object) -> Array:
    if isinstance(answer, (list, tuple)):
        return np.concatenate([np.asarray(part).ravel() for part in answer])
    return np.asarray(answer).ravel()


def _equal(answer: Array | None, expected: Array) -> bool:
    if answer is None or answer.shape != expected.shape or answer.dtype != expected.dtype:
        return False
    if np.array_equal(answer, expected):
        return True
    if expected.dtype.kind in "biu":
        return False
    # A product or a mean may be rounded in another order.
    epsilon = 2.0**-7 if expected.dtype.itemsize == 2 else float(np.finfo(expected.dtype).eps)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    # Relative alone: all terms are positive, so nothing cancels.
    return np.allclose(answer.astype(wide), expected.astype(wide), rtol=8 * epsilon, atol=0)
