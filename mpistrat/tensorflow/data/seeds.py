"""Set TensorFlow's seeds: equal on all ranks for datasets, by rank for random operations.

A program that sets TensorFlow's global seed has them. For others it is not set here: with it all
random operations of a pipeline, such as those that change images, would do the same in each epoch
and on each rank. Only data sets that shuffle get seeds, the same ones on all ranks, because each
takes its share of one order.

Random operations of replicas differ, as those of one process do, where TensorFlow counts them. So
where a global seed is set, the rank is part of the seed of each that has none of its own.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.tensorflow.own_strategies import is_over_ranks, our_replica
from mpistrat.tensorflow.private import data as private_data
from mpistrat.tensorflow.private import eager
from mpistrat.tensorflow.private import graph as private_graph

__all__ = ["agree_on_seed", "common_order"]

_MOST = 2**31 - 1  # TensorFlow's seeds are below this
_STRIDE = 1_640_531_527  # between ranks, far from the small numbers that TensorFlow counts
_common: dict[str, random.Random] = {}  # what data sets' seeds are drawn from, if anything


def agree_on_seed(communicator: Communicator) -> None:
    """Make unseeded data sets shuffle equally on all ranks, which divide one order.

    **Collective.** Ranks have to make their data sets in the same order after this.
    """
    seed = communicator.bcast_object(_draw())
    # One rank keeps TensorFlow's own unseeded shuffling.
    if communicator.size > 1:
        _common["draws"] = random.Random(seed)


def common_order(communicator: Communicator) -> int | None:
    """Return a seed that is equal on all ranks; None if it is TensorFlow's global one.

    That is so if the program has set the same one on all ranks. **Collective.**
    """
    with communicator.labelled("the order of arrays' rows"):
        told = communicator.allgather_object((eager.global_seed(), _draw()))
    first, drawn = told[0]
    is_set = first is not None and all(seed == first for seed, _ in told)
    return None if is_set else drawn


def _draw() -> int:
    return random.SystemRandom().getrandbits(31)


def _seeded(get_seed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap the function that gives a data set its seeds from the program's seed, or None."""

    def get(seed: Any) -> Any:
        if seed is None and "draws" in _common and not _is_set():
            seed = _common["draws"].getrandbits(31)
        # `get_seed` asks that of operations, to which `_by_rank` would add the rank.
        _within.dataset = True
        try:
            return get_seed(seed)
        finally:
            _within.dataset = False

    return get


class _Within(threading.local):
    """Whether this thread is drawing the seed of a data set."""

    dataset = False


_within = _Within()


def _by_rank(get_seed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap the function that gives operations their seeds from the program's seed, or None."""

    def get(seed: Any) -> Any:
        found = get_seed(seed)
        # A seed of its own is meant to be equal on all ranks; without a global one chance differs
        # anyway.
        if seed is not None or found[1] is None or _within.dataset:
            return found
        replica = our_replica()
        if replica is None or not is_over_ranks(replica.strategy):
            return found
        own = (found[1] + _STRIDE * replica.strategy.communicator.rank) % _MOST
        return found[0], own if found[0] or own else _MOST  # (0, 0) would be no seed

    return get


def _is_set() -> bool:
    if tf.executing_eagerly():
        return eager.global_seed() is not None
    return tf.compat.v1.get_default_graph().seed is not None


private_data.wrap_dataset_seeds(_seeded)
private_graph.wrap_seeds(_by_rank)
