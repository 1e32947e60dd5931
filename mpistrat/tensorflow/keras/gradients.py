"""Clip and check Keras's gradients after their sum over the replicas.

The functions wrap methods of Keras (see hooks.py), and leave other strategies to them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.graph.same_variables.gradient_order import OF_GRADIENTS, gradients_of
from mpistrat.tensorflow.own_strategies import our_replica

__all__ = ["clip_sums", "finite_on_all", "noted_variables", "sum_once"]


# TensorFlow runs the replicas of a rank in threads of their own.
class _Sums(threading.local):
    clipped: Sequence[Any] = ()
    variables: Sequence[Any] = ()  # of the step under way


_sums = _Sums()


def finite_on_all(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``check_finite``: skip a step on all replicas if the gradients of one overflowed.

    Keras looks at a replica's own gradients, so only some replicas might skip the step.
    """

    def check_finite(self: Any, grads: Any) -> Any:
        mine = original(self, grads)
        context = our_replica()
        if context is None:
            return mine
        # TensorFlow sums no booleans, so overflows are counted.
        overflows = context.all_reduce("sum", tf.cast(tf.logical_not(mine), tf.int32))
        return tf.equal(overflows, 0)

    return check_finite


def clip_sums(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``_clip_gradients``: sum over the replicas first, which Keras does after clipping."""

    def clip(self: Any, grads: Any) -> Any:
        limits = (self.clipnorm, self.global_clipnorm, self.clipvalue)
        if not any(limits) or our_replica() is None:
            return original(self, grads)
        # A subclass may clip outside of a step, where there are no variables to compare.
        is_step = len(_sums.variables) == len(grads)
        variables = _sums.variables if is_step else [None] * len(grads)
        pairs = self._all_reduce_sum_gradients(list(zip(grads, variables, strict=True)))
        _sums.clipped = original(self, [total for total, _ in pairs])
        return _sums.clipped

    return clip


def sum_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``_all_reduce_sum_gradients``: do not sum again what `clip_sums` has summed."""

    def all_reduce(self: Any, grads_and_vars: Any) -> Any:
        pairs = list(grads_and_vars)
        # Compared by identity: after an error between clipping and this call, they are of an
        # earlier step.
        clipped, _sums.clipped = _sums.clipped, ()
        if list(map(id, clipped)) == [id(grad) for grad, _ in pairs]:
            return pairs
        totals = _totals(pairs)
        if totals is None:
            return original(self, pairs)
        return [(total, variable) for total, (_, variable) in zip(totals, pairs, strict=True)]

    return all_reduce


def noted_variables(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``_backend_apply_gradients``: note the variables, which `clip_sums` is not given."""

    def apply(self: Any, grads: Any, trainable_variables: Any) -> Any:
        before = _sums.variables
        _sums.variables = [getattr(one, "value", one) for one in trainable_variables]
        try:
            return original(self, grads, trainable_variables)
        finally:
            _sums.variables = before

    return apply


def _totals(pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Return the gradients' sums, compared by variables; None where that is not to be done."""
    context = our_replica()
    if context is None or not pairs or any(one is None for pair in pairs for one in pair):
        return None
    gradients = gradients_of([variable for _, variable in pairs])
    if gradients is None:
        return None
    options = tf.distribute.experimental.CommunicationOptions()
    setattr(options, OF_GRADIENTS, gradients)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, [grad for grad, _ in pairs], options)
