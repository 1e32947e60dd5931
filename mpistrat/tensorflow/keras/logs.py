"""Combine what Keras's steps return, logs and predictions, over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.own_strategies import is_ours, is_over_ranks

__all__ = ["all_rows", "means", "not_for_ranks", "reduced_over_ranks"]


def reduced_over_ranks(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return predictions of all ranks, in order; and the means of what training logs.

    All ranks have to see the same logs: a callback that stops one rank would leave the others
    waiting.
    """

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction == "auto" and isinstance(strategy, distribute.TPUStrategy):
            reduction = "first"  # Keras would ask tf.distribute, which a program may have replaced
        if not is_over_ranks(strategy):
            return original(values, strategy, reduction)
        if reduction == "concat":
            return tf.nest.map_structure(partial(all_rows, strategy), values)
        local = original(values, strategy, reduction)
        return means(local, strategy) if reduction in ("auto", "mean") else local

    return reduce_per_replica


def not_for_ranks(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the test for TensorFlow's multi-worker strategies, which goes by a class's name.

    A strategy over ranks may have that name, and must not be taken for one.
    """
    return lambda strategy: not is_ours(strategy) and original(strategy)


def all_rows(strategy: Any, value: Any) -> tf.Tensor:
    """Gather predictions in the data's order: rows of the ranks' first replicas come first."""
    local = strategy.experimental_local_results(value)
    return tf.concat([strategy.extended.bridge.all_gather(one) for one in local], axis=0)


def means(values: Any, strategy: Any) -> Any:
    """Return the means over the ranks of what training logs. **Collective.**"""
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    floats = [i for i, value in enumerate(flat) if value.dtype.is_floating]
    found = strategy.extended.bridge.all_reduce([flat[i] for i in floats], "mean")
    for index, mean in zip(floats, found, strict=True):
        flat[index] = mean
    return tf.nest.pack_sequence_as(values, flat)
