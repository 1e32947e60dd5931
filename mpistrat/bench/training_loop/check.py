"""Check that all ranks learn the same as one process: the same losses, and equal weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.training_loop.loop import TrainingLoop
from mpistrat.bench.training_loop.reference import reference_losses
from mpistrat.bench.training_loop.task import Task
from mpistrat.types import Array

__all__ = ["other_weights", "why_losses_differ", "why_wrong"]

_STEPS = 4
_TOLERANCE = 1e-4  # of float32 against float64


def why_wrong(loop: TrainingLoop, task: Task) -> str | None:
    """Train for some steps; return what is wrong, the same on all ranks. **Collective.**"""
    losses = loop.run(_STEPS, warmup=0).losses
    communicator = loop.strategy.communicator
    # Only on rank 0, since each process would need the processor for it.
    expected = reference_losses(task, _STEPS) if communicator.rank == 0 else None
    expected = communicator.bcast_object(expected)
    wrong = why_losses_differ(losses, expected)
    reasons = communicator.allgather_object(wrong)
    first = next((f"rank {rank}: {one}" for rank, one in enumerate(reasons) if one), None)
    return first or other_weights(communicator, [one.numpy() for one in loop.variables])


def why_losses_differ(losses: Sequence[float], expected: Sequence[float]) -> str | None:
    """Return the first step whose loss is not the expected one, in words. **Local.**"""
    for step, (loss, right) in enumerate(zip(losses, expected, strict=True), 1):
        if not np.isclose(loss, right, rtol=_TOLERANCE, atol=1e-6):
            return f"the loss of step {step} is {loss:.7g}; one process gets {right:.7g}"
    return None


def other_weights(communicator: Communicator, values: Sequence[Array]) -> str | None:
    """Return which ranks have other bits than rank 0, in words. **Collective.**"""
    state = hashlib.sha256()
    for value in values:
        state.update(np.ascontiguousarray(value).tobytes())
    digests = communicator.allgather_object(state.digest())
    others = [rank for rank, one in enumerate(digests) if one != digests[0]]
    return f"the weights of ranks {others} are not those of rank 0" if others else None
