"""Weight a replica's values by its share of a step's rows, as batches may be unequal.

The mean of the replicas' means is the mean of all rows only if all have equally many. So each
replica's mean is weighted by its share of the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

__all__ = ["current", "of_batch"]


class _Local(threading.local):
    batch: tf.Tensor | None = None
    # The graph that the share is a tensor of: an outer graph cannot use an inner graph's tensor.
    graph: Any = None
    share: tf.Tensor | None = None


_local = _Local()


@contextmanager
def of_batch(args: Any) -> Iterator[None]:
    """Let a replica function with arguments `args` ask for its share. **Local.**"""
    before = _local.batch, _local.graph, _local.share
    _local.batch, _local.graph, _local.share = _first_tensor(args), None, None
    try:
        yield
    finally:
        _local.batch, _local.graph, _local.share = before


def _first_tensor(args: Any) -> tf.Tensor | None:
    for leaf in tf.nest.flatten(args):
        # A scalar, such as the number of a step, has no rows.
        if isinstance(leaf, tf.Tensor) and leaf.shape.rank != 0:
            return leaf
    return None


def current() -> tf.Tensor | None:
    """Return this replica's rows over all replicas' rows; None if all have equally many.

    In a graph, a length that is known while tracing is the same on every replica. All replicas
    call it, in a replica function. **Collective** the first time in a step, and in each function
    or branch in it.
    """
    batch = _local.batch
    if batch is None or (not tf.executing_eagerly() and _has_known_length(batch)):
        return None
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if _local.share is None or _local.graph is not graph:
        # Sums of whole numbers are exact in float64, whatever their order.
        mine = tf.cast(tf.shape(batch)[0], tf.float64)
        total = tf.distribute.get_replica_context().all_reduce("sum", mine)
        _local.graph, _local.share = graph, tf.math.divide_no_nan(mine, total)
    return _local.share


def _has_known_length(batch: tf.Tensor) -> bool:
    return batch.shape.rank is not None and batch.shape[0] is not None
