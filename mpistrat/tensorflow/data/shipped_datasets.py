"""Ship datasets to workers, which then all read them in the same order.

Where a data set shuffles without a seed, each worker would draw an order of its own, and the
workers' shares of an epoch would overlap. So seeds are drawn once, here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["is_endless", "length", "sent"]

_MOST_BYTES = 512 << 20  # of a message: it is in memory several times while it is made
_SHUFFLE = "ShuffleDataset"
_WITH_GENERATOR = ("ShuffleDatasetV2", "ShuffleDatasetV3")
_ONLY_HERE = (
    *("PyFunc", "PyFuncStateless", "EagerPyFunc", "ShuffleAndRepeatDatasetV2"),
    "VarHandleOp",  # a copy would not change any more
)


def length(dataset: tf.data.Dataset) -> int | None:
    """Return the number of elements, or None if it is unknown or infinite. **Local.**"""
    found = int(dataset.cardinality())
    return found if found >= 0 else None


def is_endless(dataset: tf.data.Dataset) -> bool:
    """Tell whether a data set is known to be infinite. **Local.**"""
    return int(dataset.cardinality()) == int(tf.data.INFINITE_CARDINALITY)


def sent(dataset: tf.data.Dataset) -> Any:
    """Return a function that makes an equal data set on a worker. **Local.**

    Returns
    -------
    callable or None
        It returns pairs of a number from 0 on and an element; the elements repeat without end, and
        are shuffled anew each time if they would be here. None if only this process can read the
        data: it has a Python function or a variable, shuffles in an inner data set, or is too
        large to send.
    """
    graph = _graph(dataset)
    if graph is None or not _pin(graph):
        return None
    serialized, spec = tf.constant(graph.SerializeToString()), dataset.element_spec

    def dataset_fn() -> tf.data.Dataset:
        variant = tf.raw_ops.DatasetFromGraph(graph_def=serialized)
        options = tf.data.Options()
        # Parallel maps would hand on elements in the order in which they are done, another on each
        # worker.
        options.deterministic = True
        same = tf.data.experimental.from_variant(variant, spec).with_options(options)
        # Numbered over all epochs: the chief sends a number, and workers skip to it (`of_worker`).
        return same.repeat().enumerate()

    return dataset_fn


def _graph(dataset: tf.data.Dataset) -> Any:
    try:
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            external_state_policy=1,  # what has a state is not refused: seeds are seen to here
            strip_device_assignment=True,
        ).numpy()
    except tf.errors.OpError:  # such as a graph beyond 2 GB
        return None
    if len(serialized) > _MOST_BYTES:
        return None
    return tf.compat.v1.GraphDef.FromString(serialized)


def _pin(graph: Any) -> bool:
    """Draw all seeds that the program has not set; return whether that was possible."""
    inner = [node for function in graph.library.function for node in function.node_def]
    ops = {node.op for node in (*graph.node, *inner)}
    if ops.intersection(_ONLY_HERE) or any(n.op.startswith(_SHUFFLE) for n in inner):
        return False
    # The second version has its seeds in a generator of this process, not in the graph.
    if any(node.op == _WITH_GENERATOR[0] for node in graph.node):
        return False
    draw = random.SystemRandom()
    _pin_shuffles(graph, draw)
    _pin_operations((*graph.node, *inner), draw)
    return True


def _pin_shuffles(graph: Any, draw: random.Random) -> None:
    """Seed shuffles, which then no longer use this process's generator."""
    nodes, generators = {node.name: node for node in graph.node}, set()
    for node in graph.node:
        if node.op != _WITH_GENERATOR[1]:
            continue
        seeds = [nodes[name].attr["value"].tensor for name in node.input[2:4]]
        # Two zeros stand for no seed.
        if not any(tf.make_ndarray(seed) for seed in seeds):
            for seed in seeds:
                seed.CopyFrom(tf.make_tensor_proto(np.int64(draw.getrandbits(31))))
        generators.add(node.input[4])
        del node.input[4]
        # The first version of the operation has the inputs that are left.
        node.op = _SHUFFLE
    kept = [node for node in graph.node if node.name not in generators]
    # A generator would be made on each worker, and used by nobody.
    del graph.node[:]
    graph.node.extend(kept)


def _pin_operations(nodes: Iterable[Any], draw: random.Random) -> None:
    """Seed operations such as ``tf.random.shuffle``."""
    for node in nodes:
        if "seed" in node.attr and "seed2" in node.attr:
            first, second = node.attr["seed"], node.attr["seed2"]
            if not (first.i or second.i):
                first.i, second.i = draw.getrandbits(31), draw.getrandbits(31)
