"""Data sets that each rank shuffles in an order of its own, so that rows of all are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from mpistrat.cluster.log import get_logger, warn_once
from mpistrat.tensorflow import private_api

__all__ = ["warn_of_own_order"]

_LOG = get_logger(__name__)
_READERS = ("TFRecord", "TextLine", "FixedLengthRecord", "CSV")


def warn_of_own_order(dataset: Any) -> None:
    """Warn if ranks divide the rows of `dataset`, but each in an order of its own. **Local.**

    So it is if it was made before the strategy, which gives the ranks seeds. Files are divided
    before TensorFlow shuffles them.
    """
    if not isinstance(dataset, tf.data.Dataset) or not tf.executing_eagerly():
        return
    policy = dataset.options().experimental_distribute.auto_shard_policy
    kinds = tf.data.experimental.AutoShardPolicy
    parts = list(_with_inputs(dataset))
    is_by_rows = policy == kinds.DATA or (
        policy == kinds.AUTO and not any(map(_reads_files, parts))
    )
    if is_by_rows and any(map(_shuffles_by_chance, parts)):
        warn_once(
            _LOG,
            "order of its own",
            "a dataset that was shuffled without a seed before the strategy was made: each rank"
            " takes its share of an order of its own, so that some rows come twice and others"
            " never; make the strategy first, or give shuffle a seed",
        )


def _with_inputs(dataset: Any) -> Iterator[Any]:
    yield dataset
    for one in private_api.inputs_of(dataset):
        yield from _with_inputs(one)


def _shuffles_by_chance(dataset: Any) -> bool:
    """Whether a data set, without its inputs, is in an order that no seed gives."""
    name = type(dataset).__name__
    if "Shuffle" not in name and "Random" not in name:
        return False
    return all(tf.is_tensor(seed) and int(seed) == 0 for seed in private_api.seeds_of(dataset))


def _reads_files(dataset: Any) -> bool:
    """Whether a data set, without its inputs, reads files, itself or in its functions."""
    ops = (op for name in private_api.functions_of(dataset) for op in _ops_of(name))
    return any(reader in name for name in (type(dataset).__name__, *ops) for reader in _READERS)


def _ops_of(function: str) -> Iterator[str]:
    """Return the operations of a function that was traced, and of those that it has."""
    for node in private_api.nodes_of(function):
        yield node.op
        for attribute in node.attr.values():
            if attribute.func.name:
                yield from _ops_of(attribute.func.name)
