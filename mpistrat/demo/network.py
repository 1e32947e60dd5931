"""A network of dense layers in plain NumPy: what it computes, and its gradient.

On GPUs the same functions get arrays of CuPy, and NumPy hands each call over to CuPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import mpistrat
from mpistrat.types import Array

__all__ = ["Network"]


class Network:
    """Dense layers with ReLU between them, and the cross-entropy of a softmax at the end.

    Make it in a strategy's scope: its variables then have a copy on each replica.

    Parameters
    ----------
    sizes
        Number of inputs, of units in each hidden layer, and of classes.
    seed
        Of the initial weights.
    """

    def __init__(self, sizes: Sequence[int], seed: int = 0) -> None:
        random = mpistrat.random.generator(seed, stream="weights")
        self.weights = []
        self.biases = []
        for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
            start = random.normal(0.0, np.sqrt(2 / inputs), (inputs, outputs))
            self.weights.append(mpistrat.Variable(start, name=f"weights_{layer}"))
            self.biases.append(mpistrat.Variable(np.zeros(outputs), name=f"biases_{layer}"))

    @property
    def variables(self) -> list[mpistrat.Variable]:
        """All weights, then all biases, from the first layer to the last."""
        return [*self.weights, *self.biases]

    def logits(self, images: Array) -> Array:
        """Return the unnormalised log-probability of each class, (examples, classes)."""
        return self._forward(images)[-1]

    def losses_and_gradients(self, images: Array, labels: Array) -> tuple[Array, list[Array]]:
        """Return each example's loss, and the gradients of the **sum** of these losses.

        Parameters
        ----------
        images
            (examples, inputs); there may be no example, and the gradients are then 0.
        labels
            (examples,), whole numbers from 0.

        Returns
        -------
        tuple
            The losses, (examples,), and one gradient for each of :attr:`variables`.
        """
        *inputs, logits = self._forward(images)
        log_p = _log_softmax(logits)
        rows = np.arange(len(labels), like=labels)  # on the GPU where the labels are
        slope = np.exp(log_p)
        slope[rows, labels] -= 1.0
        for_weights, for_biases = self._backward(inputs, slope)
        return -log_p[rows, labels], [*for_weights, *for_biases]

    def _forward(self, images: Array) -> list[Array]:
        """Return the input of every layer, and the output of the last one."""
        values = [images]
        for layer, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            sums = values[-1] @ weights.value() + biases.value()
            is_last = layer == len(self.weights) - 1
            values.append(sums if is_last else np.maximum(sums, 0.0))
        return values

    def _backward(self, inputs: list[Array], slope: Array) -> tuple[list[Array], list[Array]]:
        """Carry the slope of the loss by the last layer's output back to every variable."""
        for_weights, for_biases = [], []
        for layer in reversed(range(len(self.weights))):
            for_weights.append(inputs[layer].T @ slope)
            for_biases.append(slope.sum(axis=0))
            if layer:
                slope = (slope @ self.weights[layer].value().T) * (inputs[layer] > 0)
        return for_weights[::-1], for_biases[::-1]


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)  # so that exp cannot overflow
    log_p: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_p
