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
    """Return the means over the ranks of what training logs. **Collective.**

    Those of integers are rounded towards 0, as Keras rounds them over replicas. Of what has no
    mean, such as bool and strings, all ranks get rank 0's.
    """
    bridge = strategy.extended.bridge
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    numbers = [i for i, one in enumerate(flat) if one.dtype.is_floating or one.dtype.is_integer]
    found = bridge.all_reduce([_with_fractions(flat[i]) for i in numbers], "mean")
    means_of = dict(zip(numbers, found, strict=True))
    flat = [
        tf.cast(means_of[i], one.dtype) if i in means_of else bridge.broadcast(one)
        for i, one in enumerate(flat)
    ]
    return tf.nest.pack_sequence_as(values, flat)


def _with_fractions(number: tf.Tensor) -> tf.Tensor:
    return number if number.dtype.is_floating else tf.cast(number, tf.float64)
