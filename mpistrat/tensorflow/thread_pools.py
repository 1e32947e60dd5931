"""Divide the cores of a machine among TensorFlow's thread pools of its ranks.

TensorFlow starts a thread for each core in every process. Ranks on one machine would have several
times as many threads as there are cores, which wait for each other.
"""

from __future__ import annotations

import os

import tensorflow as tf

from mpistrat.cluster.devices.core_shares import CoreShare, share_of_cores
from mpistrat.collectives import Communicator
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.private import eager

__all__ = ["set_pools", "share_cores"]

_LOG = get_logger(__name__)

_LEAST_BETWEEN = 2
"""Threads that start operations: one may be in a ``tf.numpy_function`` that waits for a rank."""


def share_cores(communicator: Communicator) -> None:
    """Give this rank's pools as many threads as its part of the machine's cores. **Collective.**

    Numbers that are set by the program or environment stay. TensorFlow must not be in use yet: it
    reads the sizes when it starts.
    """
    found = share_of_cores(communicator.topology, communicator.allgather_object)
    if found is not None:
        set_pools(found)


def set_pools(found: CoreShare) -> None:
    """Give the pools as many threads as this rank may use, unless they are set. **Local.**"""
    share, why = found
    pools = tf.config.threading
    has_intra = _is_set(pools.get_intra_op_parallelism_threads(), "TF_NUM_INTRAOP_THREADS")
    has_inter = _is_set(pools.get_inter_op_parallelism_threads(), "TF_NUM_INTEROP_THREADS")
    try:
        if not has_intra:
            pools.set_intra_op_parallelism_threads(share)
            if share == 1:  # a thread that spins, waiting for work, has the core of one that works
                eager.stop_spinning()
        if not has_inter:
            pools.set_inter_op_parallelism_threads(max(_LEAST_BETWEEN, share))
    except RuntimeError:  # it has started
        warn_once(
            _LOG,
            "threads too late",
            f"{why}: TensorFlow, in use before the strategy, has threads for all cores on each"
            " rank, which is slow; make the strategy first, or begin with"
            f" tf.config.threading.set_intra_op_parallelism_threads({share})",
        )
        return
    if not (has_intra and has_inter):
        text = f"{why}: TensorFlow computes with {share} threads here; to have others, set"
        warn_once(_LOG, "threads", f"{text} tf.config.threading before the strategy", "INFO")


def _is_set(threads: int, variable: str) -> bool:
    return threads != 0 or bool(os.environ.get(variable))
