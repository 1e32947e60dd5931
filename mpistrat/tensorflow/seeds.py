"""TensorFlow's global seed, which ranks need to shuffle alike, and whether the program set it."""

from __future__ import annotations

import random

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.tensorflow import private_api

__all__ = ["agree_on_seed", "common_order"]

_drawn: set[int] = set()


def agree_on_seed(communicator: Communicator) -> None:
    """Let unseeded programs shuffle alike on all ranks: each takes its share of one order.

    **Collective.**
    """
    seeds = communicator.allgather_object(private_api.global_seed())
    if all(seed is None for seed in seeds) and communicator.size > 1:
        seed = int(communicator.bcast_object(_draw()))
        _drawn.add(seed)
        tf.random.set_seed(seed)


def common_order(communicator: Communicator) -> int | None:
    """Return what the ranks may shuffle by, the same on all; None if TensorFlow's seed will do.

    It will do if the program has set the same one on all ranks. **Collective.**
    """
    mine = private_api.global_seed()
    told = communicator.allgather_object((None if mine in _drawn else mine, _draw()))
    first, drawn = told[0]
    is_set = first is not None and all(seed == first for seed, _ in told)
    return None if is_set else drawn


def _draw() -> int:
    return random.SystemRandom().getrandbits(31)
