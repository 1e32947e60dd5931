"""A model that several tests train: weights, and a table of which some rows are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpistrat
from mpistrat import IndexedSlices, Variable
from mpistrat.optimizers import SGD, Adagrad, Adam, Optimizer

__all__ = ["BATCH", "MAKERS", "STEPS", "new_variables", "step_gradients"]

MAKERS: dict[str, Callable[[], Optimizer]] = {
    "sgd": lambda: SGD(0.05),
    "momentum": lambda: SGD(0.05, 0.9),
    "adagrad": lambda: Adagrad(0.1),
    "adam": lambda: Adam(lambda step: 0.02 / (1 + step)),
    "lazy": lambda: Adam(0.02, lazy=True),
}
"""Optimizers, by the names of tests' cases."""

STEPS, BATCH = 5, 12


def new_variables() -> list[Any]:
    """Return the weights, of shape [4], and the table, of shape [9, 2], in float64."""
    return [Variable(np.zeros(4), name="w"), Variable(np.zeros((9, 2)), name="table")]


def step_gradients(
    step: int, weights: Any, table: Any, rows: slice = slice(None)
) -> tuple[Any, IndexedSlices]:
    """Return what `rows` of a batch give to the gradients of its mean squared error."""
    random = np.random.default_rng(step)
    features, words = random.normal(size=(BATCH, 4))[rows], random.integers(0, 9, BATCH)[rows]
    looked_up = mpistrat.nn.embedding_lookup(table, words)
    error = features @ np.asarray(weights) + looked_up.sum(axis=1) - features.sum(axis=1)
    error *= 2 / BATCH
    return features.T @ error, IndexedSlices(np.stack([error, error], axis=1), words, (9, 2))
