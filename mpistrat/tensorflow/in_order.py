"""Collectives of a graph run in the order in which they were traced, wherever they are.

TensorFlow keeps that order between stateful operations of one graph, but not with those in a
branch, a loop or a function that it calls: these it orders by the resources that they touch. So
each collective touches one, before and after.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["in_order"]


def in_order(call: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
    """Return what `call` adds to the graph, or returns now, after all that was in order before."""
    if tf.executing_eagerly() or not tf.compat.v1.executing_eagerly_outside_functions():
        return call()
    with tf.control_dependencies([_touch()]):
        results = call()
    with tf.control_dependencies(results):
        _touch()
    return results


def _touch() -> Any:
    with tf.device("CPU:0"):
        return tf.raw_ops.AssignVariableOp(resource=_resource(), value=tf.constant(False))


@functools.cache
def _resource() -> tf.Tensor:
    """Return a variable's handle: one for all strategies, and no part of any."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name="mpistrat_order")
