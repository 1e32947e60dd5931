"""Run the only replica of a worker in the thread that calls it, under parameter servers.

TensorFlow starts a thread for each replica, also for the only one. What all replicas do together,
such as an optimizer's update, then cannot be inside of a ``tf.cond``: Keras has it there for
``gradient_accumulation_steps`` and ``ema_overwrite_frequency``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.strategies.replica_context import RankReplicaContext

__all__ = ["in_this_thread"]


def in_this_thread(extended: Any, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call `fn` as a replica does, as ``extended._call_for_each_replica``. **Local.**"""
    original = type(extended)._call_for_each_replica
    if extended._num_replicas_in_sync > 1:
        return original(extended, fn, args, kwargs)
    extended._assert_being_scheduled_by_cluster_coordinator()
    context = RankReplicaContext(extended._container_strategy(), 0)
    with context, tf.device(extended.worker_devices[0]):
        return fn(*private_api.of_replica(0, args), **private_api.of_replica(0, kwargs))
