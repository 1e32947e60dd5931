"""Each rank drives a strategy of TensorFlow's as its slice; together they are one.

TensorFlow's mirrored machinery asks a few of its members who it is and how values are combined.
`RankExtended` answers these for all ranks, so a slice is a strategy of TensorFlow's whose
machinery has become one: replicas, Keras and variables need nothing else.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.raise_on_all import all_or_none
from mpistrat.errors import UsageError
from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.graph.cross_device_ops import RankAllReduce
from mpistrat.tensorflow.graph.native_op import has_workers
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.strategies.base import agree
from mpistrat.tensorflow.strategies.extended import RankExtended
from mpistrat.tensorflow.strategies.strategy_members import RankMembers
from mpistrat.tensorflow.wrapped_strategy.base import WrappedStrategy
from mpistrat.tensorflow.wrapped_strategy.host_bridge import HostBridge
from mpistrat.tensorflow.wrapped_strategy.mixin import join

__all__ = ["MirroredSlice"]


class MirroredSlice(WrappedStrategy):
    """Slices whose replicas meet in every reduction, inside of functions and outside.

    Parameters
    ----------
    tf_strategy
        A tf.distribute.MirroredStrategy in which nothing was made yet. It becomes a slice: it
        counts the replicas of all ranks from now on.
    communicator
        Between the slices.

    Raises
    ------
    UsageError
        On all ranks: it is no such strategy, or they have unequal numbers of replicas.
    """

    def __init__(self, tf_strategy: tf.distribute.Strategy, communicator: Communicator) -> None:
        super().__init__(tf_strategy, communicator)
        # Before the strategy is changed: after an error it is still the program's own.
        all_or_none(communicator, lambda: _check(tf_strategy), "looking at its strategy")
        extended, local = tf_strategy.extended, private_api.chosen_operations(tf_strategy)
        # GPUs of a worker on another machine are not this process's.
        of_worker = has_workers()
        places = ["CPU:0"] * int(tf_strategy.num_replicas_in_sync)
        gpu = agree(communicator, places if of_worker else extended.worker_devices)
        # The bridge first, which the members of RankExtended ask.
        if of_worker:
            extended.bridge = HostBridge(communicator)
        else:
            extended.bridge = Bridge(communicator, gpu=gpu)
        extended._cross_device_ops = RankAllReduce(extended.bridge, local)
        join(extended, RankExtended)
        extended.name_task()
        join(tf_strategy, RankMembers)


def _check(tf_strategy: Any) -> None:
    name = type(tf_strategy).__name__
    if isinstance(tf_strategy, RankMembers):
        raise UsageError(
            f"this {name} is a slice, or over all ranks, already; make one of its own"
        )
    if not private_api.is_mirrored_strategy(tf_strategy):
        raise UsageError(
            f"a {name} on each of several ranks; expected a tf.distribute.MirroredStrategy, whose"
            ' gradients can be summed over them; MirroredStrategy(["CPU:0"]) has one device. Any'
            " strategy can be driven by one rank: driver=0"
        )
