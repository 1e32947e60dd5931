"""Weight Keras's losses by rows, so that their sum over replicas is the mean of all rows."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.keras import row_weights
from mpistrat.tensorflow.own_strategies import our_replica

__all__ = ["loss_of_outputs", "scaled_by_share", "unscaled"]

# Whether the loss that Keras computes is an output's, which it averages over steps, not rows.
_counts_steps: ContextVar[bool] = ContextVar("counts_steps", default=False)


def scaled_by_share(original: Callable[..., Any]) -> Callable[..., Any]:
    """Weight a replica's mean by its share of the rows."""

    def scale(value: Any) -> Any:
        share = _share()
        return original(value) if share is None else value * tf.cast(share, value.dtype)

    return scale


def unscaled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Undo `scaled_by_share` where Keras logs a loss."""

    def unscale(value: Any) -> Any:
        share = _share()
        if share is None or _counts_steps.get():
            return original(value)
        if tuple(value.shape) == (0,):  # eagerly, the loss of no rows; its mean is no number
            value = tf.reduce_sum(value)
        return tf.math.divide_no_nan(value, tf.cast(share, value.dtype))

    return unscale


def loss_of_outputs(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let an output's loss of a step be the mean of its rows.

    In a graph Keras knows no number of rows there: each replica counts once in a step, with what
    it adds to the mean times the number of replicas. Eagerly it counts rows, as elsewhere.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _counts_steps.set(not tf.executing_eagerly())
        try:
            return original(self, *args, **kwargs)
        finally:
            _counts_steps.reset(token)

    return call


def _share() -> tf.Tensor | None:
    """Return the running replica's share of the rows; None outside of strategies over ranks."""
    return row_weights.current() if our_replica() is not None else None
