"""Divide a ``tf.data.Dataset`` among ranks: by its files where they are enough, else by rows.

TensorFlow decides which when it rewrites the data set's graph; its decision is read from that
graph. Three cases that it leaves to the user are handled: fewer files than ranks, caches that
would hold one rank's rows for all readers of the data set, and cache files that several ranks
would write at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.data import dataset_parts
from mpistrat.tensorflow.data.cache_files import drop_stale
from mpistrat.tensorflow.data.order_check import OrderCheck, keep_order_check
from mpistrat.tensorflow.data.shuffle_check import check_order
from mpistrat.tensorflow.private import data as private_data

__all__ = ["divided", "divided_again", "in_order", "not_compared"]

_LOG = get_logger(__name__)
_POLICIES = tf.data.experimental.AutoShardPolicy
_PASSED_ON = ("Rebatch", "Prefetch", "Options", "Model")  # what may stand behind the division
_CACHES = ("CacheDataset", "CacheDatasetV2")
_KEPT = "_mpistrat_divided"
_BY_FILES = "_mpistrat_by_files"

_is_in_order: ContextVar[bool] = ContextVar("is_in_order", default=False)
_is_compared: ContextVar[bool] = ContextVar("is_compared", default=True)

Make = Callable[[Any], Any]


@contextmanager
def in_order() -> Iterator[None]:
    """Divide by rows in this block, such that results can be restored to the data's order."""
    token = _is_in_order.set(True)
    try:
        yield
    finally:
        _is_in_order.reset(token)


@contextmanager
def not_compared() -> Iterator[None]:
    """Skip the comparison in this block: the ranks' data are known to agree."""
    token = _is_compared.set(False)
    try:
        yield
    finally:
        _is_compared.reset(token)


def divided(dataset: Any, make: Make, communicator: Communicator) -> Any:
    """Return the distributed data set that `make` makes of `dataset`, after corrections.

    Parameters
    ----------
    dataset
        A ``tf.data.Dataset``, of which each rank has the same; others are passed on.
    make
        Returns TensorFlow's DistributedDataset of a data set.
    communicator
        Of the ranks that share it.

    Raises
    ------
    UsageError
        On all ranks: they shuffle with different seeds.

    Notes
    -----
    **Collective.**
    """
    if not isinstance(dataset, tf.data.Dataset) or not tf.executing_eagerly():
        return make(dataset)  # in a graph nobody knows what it is made of
    dataset = _with_own_memory(dataset)
    if communicator.size == 1:
        return make(dataset)
    policy = dataset_parts.shard_policy(dataset)
    # Each rank reads all, or divides as the program says: there is no common order to check.
    if policy in (_POLICIES.OFF, _POLICIES.HINT):
        check_order(dataset, communicator, is_by_rows=False)
        return make(dataset)
    may_be_by_files = policy == _POLICIES.FILE or (
        policy == _POLICIES.AUTO and dataset_parts.reads_files(dataset)
    )
    # Only the rewritten graph tells whether TensorFlow found files that it can divide.
    if may_be_by_files and not _is_in_order.get():
        found = make(dataset)
        rank, size = communicator.rank, communicator.size
        if _is_by_files(found, size):
            check_order(dataset, communicator, is_by_rows=False)
            # Before any pass over it, which would read what an earlier run has left.
            drop_stale(dataset, communicator, f"files_{rank}_of_{size}", has_own=True)
            _give_caches(found, dataset, f"files_{rank}_of_{size}")
            setattr(found, _BY_FILES, True)
            return found
    drop_stale(dataset, communicator, f"rank_{communicator.rank}", has_own=communicator.rank > 0)
    return _by_rows(dataset, make, communicator)


def _with_own_memory(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a data set whose batches do not share memory with Python's arrays.

    A batch that Python makes is not copied, and TensorFlow (2.21) knows that nobody may write to
    it; but not of the parts into which it is cut, which losses then write to: the program's arrays
    would change.
    """
    if not dataset_parts.has_python(dataset) or dataset_parts.has_batches(dataset):
        return dataset
    return dataset.map(_copied).with_options(dataset.options())


def _copied(*element: Any) -> Any:
    def copy(one: Any) -> Any:
        is_plain = isinstance(one, tf.Tensor) and one.dtype not in (tf.string, tf.variant)
        return tf.raw_ops.DeepCopy(x=one) if is_plain else one

    found = tf.nest.map_structure(copy, element)
    return found if len(element) > 1 else found[0]


def divided_again(data: Any, strategy: Any) -> Any:
    """Return `data`, or the original data set of one that was divided by files.

    **Collective** over the strategy's ranks.
    """
    if not getattr(data, _BY_FILES, False):
        return data
    with in_order():
        return strategy.experimental_distribute_dataset(private_data.original_dataset(data))


def _by_rows(dataset: Any, make: Make, communicator: Communicator) -> Any:
    if dataset_parts.shard_policy(dataset) != _POLICIES.DATA:
        dataset = private_data.with_shard_policy(dataset, _POLICIES.DATA)
    check_order(dataset, communicator)
    check = None
    is_endless = dataset_parts.is_endless(dataset)  # so that no row is lost for good
    if _is_compared.get() and OrderCheck.is_possible(communicator, not is_endless):
        has_chance = dataset_parts.has_chance(dataset)
        may_augment = dataset_parts.has_python(dataset)
        check = OrderCheck(dataset, communicator, has_chance, may_augment)
    found = make(dataset if check is None else check.dataset)
    # Rows are divided behind the cache, which so has all rows. Its memory may serve all readers,
    # but ranks must not write one file.
    if communicator.rank > 0:  # rank 0 may find a file that an earlier run has written
        _give_caches(found, dataset, f"rank_{communicator.rank}", in_memory=False)
    if check is not None:
        keep_order_check(found, check)
    return found


def _is_by_files(distributed: Any, num_ranks: int) -> bool:
    """Whether TensorFlow has divided by files and there are enough; warn if there are too few."""
    graph = private_data.graph_of(private_data.own_dataset(distributed))
    files = None if graph is None else _files(graph)
    if graph is None or files is None:
        return False
    count = private_data.cardinality_in(graph, files, at_least=num_ranks)
    if count >= num_ranks:
        return True
    warn_once(
        _LOG,
        "few files",
        f"a data set of fewer files than ranks ({count} for {num_ranks}): each rank reads all of"
        " them and takes its share of the rows; write at least as many files as ranks to have each"
        " read once",
    )
    return False


def _files(graph: Any) -> str | None:
    """Return the graph node of the divided file names; None where rows are divided."""
    nodes = {node.name: node for node in graph.node}
    node = next(node for node in graph.node if node.op == "_Retval")
    while node.op == "_Retval" or any(kind in node.op for kind in _PASSED_ON):
        node = nodes[node.input[0].split(":")[0]]
    shards = [one for one in graph.node if one.op == "ShardDataset"]
    is_last = node.op == "ShardDataset"
    return None if is_last or not shards else str(shards[0].input[0])


def _give_caches(distributed: Any, dataset: Any, name: str, in_memory: bool = True) -> None:
    """Give this rank's share of a data set caches of its own."""
    cache = dataset_parts.cache_of(dataset)
    if cache is None:
        return
    own = private_data.own_dataset(distributed)
    graph = private_data.graph_of(own)
    if graph is None:
        return
    kept = getattr(cache, _KEPT, {})
    paths, memories = _caches(graph)
    for path in paths:
        path.string_val[0] += f".{name}".encode()
    key = name, len(memories)  # the cache may be zipped with others
    has_memory = _exchange(memories, kept.get(key)) if in_memory else True
    mended = private_data.dataset_of(graph, own)
    private_data.replace_own_dataset(distributed, mended)
    if not has_memory:
        # The first one owns the memory: kept as long as the data set lives, not replaced by those
        # that only use it, since its end is the end of what is cached.
        setattr(cache, _KEPT, {**kept, key: mended})


def _caches(graph: Any) -> tuple[list[Any], list[Any]]:
    """Return the tensors of cache paths, and the handles of caches in memory, to be changed."""
    nodes = {node.name: node for node in graph.node}
    paths, memories = [], []
    for cache in (node for node in graph.node if node.op in _CACHES):
        path = nodes[cache.input[1]].attr["value"].tensor
        if path.string_val and path.string_val[0]:
            paths.append(path)
        # The first version of the operation takes no handle of its memory.
        elif len(cache.input) > 2:
            memories += nodes[cache.input[2]].attr["value"].tensor.resource_handle_val
    return paths, memories


def _exchange(memories: list[Any], kept: Any) -> bool:
    """Let caches use the memory of `kept`'s caches, or new memory; return whether they share."""
    found = private_data.graph_of(kept) if kept is not None else None
    known = [] if found is None else _caches(found)[1]
    if len(known) == len(memories):
        for memory, other in zip(memories, known, strict=True):
            memory.CopyFrom(other)
        return True
    for memory in memories:
        memory.name += "/none"  # where nothing is of that name TensorFlow takes new memory
    return False
