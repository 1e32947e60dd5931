"""Give Horovod's operations their names, by which it matches the transfers of the ranks.

TensorFlow ignores the name of an operation that runs eagerly, and all of one kind would have one
name, whichever strategy they are of. In a function they have the names that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

__all__ = ["Transfer", "concrete", "in_own_scope"]

Transfer: TypeAlias = Callable[[list[tf.Tensor]], list[tf.Tensor]]


def in_own_scope(transfer: Transfer, *tensors: tf.Tensor) -> list[tf.Tensor]:
    """Make a transfer of these tensors in a graph, with the same name each time.

    TensorFlow makes the name of a second one unique, unless it is in a scope of its own, which
    Horovod ignores with ``ignore_name_scope=True``.
    """
    with tf.name_scope("horovod"):
        return transfer(list(tensors))


def concrete(
    make: Callable[..., list[tf.Tensor]], dtypes: Sequence[tf.DType]
) -> Callable[..., list[tf.Tensor]]:
    """Return the function of a graph that calls `make` with tensors of any shapes. **Local.**"""
    specs = [tf.TensorSpec(None, dtype) for dtype in dtypes]
    with tf.init_scope():  # not as a part of a function that is traced now
        traced = tf.function(make, autograph=False)
        found: Callable[..., list[tf.Tensor]] = traced.get_concrete_function(*specs)
    return found
