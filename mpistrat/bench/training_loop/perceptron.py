"""A multi-layer perceptron in NumPy: initial values, losses and gradients. **Local.**"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import mpistrat
from mpistrat.types import Array

__all__ = ["initial_values", "loss_and_gradients"]


def initial_values(sizes: Sequence[int]) -> list[Array]:
    """Return the weights and biases of each layer in turn, in float32; the same on all ranks."""
    random = mpistrat.random.generator(0, stream="bench weights")
    values: list[Array] = []
    for inputs, outputs in pairwise(sizes):
        weights = random.normal(0.0, np.sqrt(2 / inputs), (inputs, outputs))
        values += [weights.astype(np.float32), np.zeros(outputs, np.float32)]
    return values


def loss_and_gradients(
    values: Sequence[Array], images: Array, labels: Array
) -> tuple[Array, list[Array]]:
    """Return the cross-entropy of examples and its gradients, both summed over the examples.

    Parameters
    ----------
    values
        As `initial_values` returns them, of one dtype, in which all is computed.
    images
        (examples, inputs), of that dtype.
    labels
        (examples,), whole numbers from 0.
    """
    *inputs, logits = _outputs(values, images)
    shifted = logits - logits.max(axis=1, keepdims=True)  # so that exp cannot overflow
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    slope = np.exp(log_p)
    slope[rows, labels] -= 1
    gradients: list[Array] = []
    for layer in reversed(range(len(inputs))):
        gradients[:0] = [inputs[layer].T @ slope, slope.sum(axis=0)]
        if layer:
            slope = (slope @ values[2 * layer].T) * (inputs[layer] > 0)
    return -log_p[rows, labels].sum(), gradients


def _outputs(values: Sequence[Array], images: Array) -> list[Array]:
    """Return the input of every layer, and the output of the last one."""
    outputs = [images]
    for layer in range(0, len(values), 2):
        sums = outputs[-1] @ values[layer] + values[layer + 1]
        is_last = layer == len(values) - 2
        outputs.append(sums if is_last else np.maximum(sums, 0))
    return outputs
