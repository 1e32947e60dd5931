"""Refuse datasets that ranks shuffle in different orders, which would lose rows.

Ranks that have unequal seeds are told so when they distribute the data set. Seeds are unequal if a
rank alone has made one more data set without a seed (seeds.py), or if they were drawn for each
rank: so do ``keras.utils.image_dataset_from_directory`` and its kin, from NumPy's generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.data.dataset_parts import is_endless
from mpistrat.tensorflow.private import data as private_data

__all__ = ["check_order"]

_LOG = get_logger(__name__)


def check_order(dataset: Any, communicator: Communicator, is_by_rows: bool = True) -> None:
    """Check that ranks that divide the rows of `dataset` have them in one order. **Collective.**

    If it is not divided by rows, there is no such order: files are divided before TensorFlow
    shuffles them.

    Raises
    ------
    UsageError
        The seeds differ, and the data set has an end. Where there are none, since it was made
        before the strategy, which gives the ranks seeds, this warns.
    """
    if not isinstance(dataset, tf.data.Dataset) or not tf.executing_eagerly():
        return
    seeds = _seeds(_ordering(dataset)) if is_by_rows else []
    # By all ranks, also if this one has nothing that shuffles: another may have.
    with communicator.labelled("a data set's seeds"):
        found = communicator.allgather_object((seeds, is_endless(dataset)))
    told = [own for own, _ in found]
    # Of endless data no row is lost for good, whatever the order.
    if not all(endless for _, endless in found) and any(one != told[0] for one in told):
        raise UsageError(
            "the seeds of a dataset that shuffles, of which each rank takes its share of the rows,"
            f" by rank: {told}; expected the same on all ranks, else some rows come twice and"
            " others never: give shuffle, or what made the dataset, a seed; without one, all ranks"
            " have to make the same datasets in the same order"
        )
    if (0, 0) in seeds:
        warn_once(
            _LOG,
            "order of its own",
            "a dataset that was shuffled without a seed before the strategy was made: each rank"
            " takes its share of an order of its own, so that some rows come twice and others"
            " never; make the strategy first, or give shuffle a seed",
        )


def _ordering(dataset: Any, chooses: bool = False) -> Iterator[Any]:
    """Yield the parts that shuffle rows or sample from several data sets.

    Other chance, such as numbers to change images by, may differ by rank.
    """
    name = type(dataset).__name__
    if "Shuffle" in name or (chooses and "Random" in name):
        yield dataset
    is_choice = "DirectedInterleave" in name  # what chooses is its first input
    for index, one in enumerate(private_data.inputs_of(dataset)):
        yield from _ordering(one, chooses or (is_choice and index == 0))


def _seeds(parts: Iterator[Any]) -> list[tuple[int, ...]]:
    """Return the two seeds of each random part; zeros if it is unseeded."""
    found = map(private_data.seeds_of, parts)
    return [tuple(map(int, seeds)) for seeds in found if all(map(tf.is_tensor, seeds))]
