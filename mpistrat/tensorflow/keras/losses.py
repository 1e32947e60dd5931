"""Weight Keras's losses by rows, so that their sum over replicas is the mean of all rows."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.keras import row_weights
from mpistrat.tensorflow.own_strategies import our_replica

__all__ = ["loss_of_outputs", "named", "reduced", "scaled_by_share", "unscaled"]

_LOG = get_logger(__name__)
_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")

# Whether the loss that Keras computes is an output's, which it averages over steps, not rows.
_counts_steps: ContextVar[bool] = ContextVar("counts_steps", default=False)
_name: ContextVar[str] = ContextVar("name", default="loss")


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


def named(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Loss.__call__``: let `reduced` know the name of the loss."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _name.set(self.name)
        try:
            return original(self, *args, **kwargs)
        finally:
            _name.reset(token)

    return call


def reduced(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``reduce_values``: warn of a loss that Keras does not divide between replicas."""

    def reduce_values(
        values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size"
    ) -> Any:
        if reduction in _MEANS and tuple(values.shape) == ():
            _warn_of_scalar()
        return original(values, sample_weight, reduction)

    return reduce_values


def _warn_of_scalar() -> None:
    context = our_replica()
    number = 1 if context is None else context.strategy.num_replicas_in_sync
    if number > 1:
        name = _name.get()
        warn_once(
            _LOG,
            f"scalar of {name}",
            f"loss {name!r} returns one number for a batch, which Keras does not divide between"
            f" replicas: gradients and the logged loss are {number} times those of one process, as"
            " under TensorFlow's strategies. Return one value per row, such as"
            " tf.reduce_mean(..., axis=-1), or divide by strategy.num_replicas_in_sync",
        )


def _share() -> tf.Tensor | None:
    """Return the running replica's share of the rows; None outside of strategies over ranks."""
    return row_weights.current() if our_replica() is not None else None
