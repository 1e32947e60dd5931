"""The losses of the training loop, computed by one process in float64."""

from __future__ import annotations

import numpy as np

from mpistrat.bench.training_loop.examples import global_batch
from mpistrat.bench.training_loop.perceptron import initial_values, loss_and_gradients
from mpistrat.bench.training_loop.task import Task
from mpistrat.types import Array

__all__ = ["RATE", "reference_losses"]

RATE = 0.05
"""The learning rate of the loop and of the reference."""

_PIECE = 4096  # examples at a time: memory does not grow with the number of ranks


def reference_losses(task: Task, steps: int) -> list[float]:
    """Return the mean loss of each of the first steps of plain gradient descent. **Local.**"""
    values = [value.astype(np.float64) for value in initial_values(task.sizes)]
    losses = []
    for step in range(steps):
        images, labels = global_batch(step, task.global_batch)
        loss, gradients = _of_pieces(values, images, labels)
        losses.append(loss / task.global_batch)
        for value, gradient in zip(values, gradients, strict=True):
            np.subtract(value, RATE / task.global_batch * gradient, out=value)
    return losses


def _of_pieces(values: list[Array], images: Array, labels: Array) -> tuple[float, list[Array]]:
    loss, total = 0.0, [np.zeros_like(value) for value in values]
    for first in range(0, len(labels), _PIECE):
        rows = slice(first, first + _PIECE)
        more, gradients = loss_and_gradients(values, images[rows].astype(np.float64), labels[rows])
        loss += float(more)
        for sums, gradient in zip(total, gradients, strict=True):
            np.add(sums, gradient, out=sums)
    return loss, total
