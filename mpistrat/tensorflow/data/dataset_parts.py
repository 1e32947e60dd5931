"""Inspect a ``tf.data.Dataset``: its inputs, files, randomness and caches. **Local.**"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private import data as private_data
from mpistrat.tensorflow.private import graph as private_graph

__all__ = [
    "cache_files_of",
    "cache_of",
    "has_batches",
    "has_chance",
    "has_python",
    "is_endless",
    "parts_of",
    "reads_files",
    "shard_policy",
]

# Those that TensorFlow divides by their files; others, such as CSV, it divides by rows.
_READERS = ("TFRecord", "TextLine", "FixedLengthRecord", "ReadFile")
_CHANCE = ("Random", "TruncatedNormal", "Multinomial", "StatefulUniform", "StatefulStandardNormal")


def parts_of(dataset: Any) -> Iterator[Any]:
    """Yield a data set and all data sets that it is made of."""
    yield dataset
    for one in private_data.inputs_of(dataset):
        yield from parts_of(one)


def shard_policy(dataset: Any) -> Any:
    """Return the AutoShardPolicy of its options."""
    return dataset.options().experimental_distribute.auto_shard_policy


def reads_files(dataset: Any) -> bool:
    """Whether a data set, or one of its inputs, reads files that TensorFlow may divide."""
    return any(_is_called(part, _reads) for part in parts_of(dataset))


def has_chance(dataset: Any) -> bool:
    """Whether random operations make rows, or parts of them; shuffling alone does not count."""
    return any(_is_called(part, _is_chance) for part in parts_of(dataset))


def has_python(dataset: Any) -> bool:
    """Whether Python functions make rows, such as generators."""
    return any(_is_called(part, _is_python) for part in parts_of(dataset))


def has_batches(dataset: Any) -> bool:
    """Whether it batches rows, and so copies them."""
    return any("Batch" in type(part).__name__ for part in parts_of(dataset))


def cache_of(dataset: Any) -> Any:
    """Return the first part that caches its elements, in memory or in a file; or None."""
    caches = (part for part in parts_of(dataset) if "CacheDataset" in type(part).__name__)
    return next(caches, None)


def cache_files_of(dataset: Any) -> list[str]:
    """Return the file names of ``cache(filename)`` in a data set, the outermost first."""
    names = (private_data.file_of_cache(part) for part in parts_of(dataset))
    return [name for name in names if name]


def is_endless(dataset: Any) -> bool:
    """Whether it never ends; TensorFlow does not know it for filtered or unbatched data."""
    number, inputs = dataset.cardinality(), list(private_data.inputs_of(dataset))
    if number != tf.data.UNKNOWN_CARDINALITY or "Take" in type(dataset).__name__:
        return bool(number == tf.data.INFINITE_CARDINALITY)
    return bool(inputs) and all(map(is_endless, inputs))


def _is_called(part: Any, is_it: Any) -> bool:
    """Whether a data set, without its inputs, or an operation in its functions has a type."""
    ops = (op for name in private_data.functions_of(part) for op in _ops_of(name))
    return is_it(type(part).__name__.lstrip("_")) or any(map(is_it, ops))


def _reads(name: str) -> bool:
    return any(reader in name for reader in _READERS)


def _is_chance(name: str) -> bool:
    return any(chance in name for chance in _CHANCE)


def _is_python(name: str) -> bool:
    return "PyFunc" in name or "Generator" in name


def _ops_of(function: str) -> Iterator[str]:
    """Return the operations of a traced function, and of functions inside it."""
    for node in private_graph.nodes_of(function):
        yield node.op
        for attribute in node.attr.values():
            if attribute.func.name:
                yield from _ops_of(attribute.func.name)
