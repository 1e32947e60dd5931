"""Feed arrays to Keras: each rank copies only the rows of its own part of a batch.

Keras shuffles and batches the rows' indices, gathers the rows, and lets the strategy divide these
batches between replicas. Here the strategy divides the batches of indices, in the same way, and
each rank gathers its own rows after that.

Ranks need a common seed to shuffle alike. But with TensorFlow's global seed Keras shuffles every
epoch, and every fit, in the same order. So if a program sets none, a common seed is drawn here,
and each epoch gets an order of its own from it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from mpistrat import config
from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.tensorflow.data import seeds
from mpistrat.tensorflow.data.digests import Digest, digests_of
from mpistrat.tensorflow.data.order_check import ADVICE
from mpistrat.tensorflow.data.sharding import not_compared
from mpistrat.tensorflow.graph.rows_op import InPlace
from mpistrat.tensorflow.keras.batch_order import agree_on_batches
from mpistrat.tensorflow.own_strategies import is_over_ranks
from mpistrat.tensorflow.private import data as private_data
from mpistrat.tensorflow.private import eager

__all__ = ["for_strategy", "own_rows", "strategy_of_data"]

_SLICING = "keras.src.trainers.data_adapters.array_slicing"
_strategy: ContextVar[Any] = ContextVar("strategy", default=None)


def for_strategy(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``TFEpochIterator.__init__``: let `own_rows` know the strategy meanwhile."""

    def init(self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
        # Keras makes the dataset in this constructor, in a method that is not given the strategy.
        with _data_for(distribute_strategy):
            original(self, distribute_strategy, *args, **kwargs)
        if is_over_ranks(distribute_strategy):
            # After it, when there is an adapter, and before the first pass shuffles.
            agree_on_batches(self.data_adapter, distribute_strategy.communicator)

    return init


def strategy_of_data() -> Any:
    """Return the strategy that Keras is taking data for; None outside of `for_strategy`."""
    return _strategy.get()


@contextmanager
def _data_for(strategy: Any) -> Iterator[None]:
    token = _strategy.set(strategy)
    try:
        yield
    finally:
        _strategy.reset(token)


def own_rows(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``ArrayDataAdapter.get_tf_dataset``: over ranks, return a distributed dataset."""

    def get_tf_dataset(self: Any) -> Any:
        strategy = _strategy.get()
        if not is_over_ranks(strategy):
            return original(self)
        rows = _sliceable(self._inputs)
        _check(self, rows, strategy.communicator)
        # After the check, which is collective: all ranks have to come to it.
        if not all(map(_can_be_taken, _numbered(rows)[1])):
            return original(self)  # such as ragged ones
        seed = seeds.common_order(strategy.communicator) if self._shuffle else None
        with not_compared():  # the arrays have been, and the order has one seed
            indices = strategy.experimental_distribute_dataset(_indices(self, original, seed))
        mine = _gathered(rows, private_data.own_dataset(indices))
        return strategy.extended.distribute_prefetched(mine)

    return get_tf_dataset


_METHODS = ("fit", "evaluate", "predict")
_LABEL = "rows of arrays for {}: fit, evaluate and predict are calls of all ranks"
_EQUAL = {
    "rows": "what all have: give every rank all rows, or rows of its own by"
    " strategy.distribute_datasets_from_function",
    "batch_size": "each batch: pass the rows of a batch of all ranks together",
}
"""What all ranks have to pass alike, and the advice where they do not."""


def _check(adapter: Any, rows: Any, communicator: Communicator) -> None:
    """Raise `UsageError` on all ranks unless they have the same rows. **Collective.**"""
    digests = _digests(rows) if config.checks() else []
    mine = adapter._num_samples, adapter._batch_size, digests
    with communicator.labelled(_LABEL.format(_method())):
        told = communicator.allgather_object(mine)
    # Compared first: arrays of other lengths have other digests, and this error says more.
    for (what, advice), numbers in zip(_EQUAL.items(), zip(*told, strict=True), strict=False):
        if len(set(numbers)) > 1:
            raise UsageError(
                f"{what} by rank: {list(numbers)}; expected the same on all ranks, since each rank"
                f" takes its share of {advice}"
            )
    if adapter._num_samples == 0:
        raise UsageError("arrays with 0 rows; expected at least one to train or predict with")
    _compare([digests for *_, digests in told])


def _method() -> str:
    """Return which of Keras's methods takes the arrays."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name not in _METHODS:
        frame = frame.f_back
    return "a data set" if frame is None else frame.f_code.co_name


def _digests(inputs: Any) -> list[Digest]:
    _, arrays = _numbered(inputs)
    return [digest for array in arrays for digest in digests_of(array)]


def _compare(told: list[list[Digest]]) -> None:
    """Raise on all ranks alike if some rank has another array, or another order of its rows."""
    for rank, digests in enumerate(told):
        pairs = itertools.zip_longest(told[0], digests)
        wrong = (i for i, (a, b) in enumerate(pairs) if not (a and b and a.is_close(b)))
        index = next(wrong, None)
        if index is not None:
            raise UsageError(
                f"array {index} of the data is not the same on rank {rank} as on rank 0"
                f" ({_name(digests, index)}, {_name(told[0], index)}); expected equal rows in one"
                f" order, since each rank takes its share of them. {ADVICE}"
            )


def _name(digests: list[Digest], index: int) -> str:
    return digests[index].text if index < len(digests) else "none"


def _sliceable(inputs: Any) -> Any:
    """Return what Keras makes of the arrays before it takes rows of them."""
    found = sys.modules[_SLICING].convert_to_sliceable(inputs, target_backend="tensorflow")
    return sys.modules["keras.src.tree"].lists_to_tuples(found)


def _indices(adapter: Any, original: Callable[..., Any], seed: int | None) -> tf.data.Dataset:
    """Return the batches that `adapter` would give if each row were its own index.

    With a seed they are in an order that is another one whenever they are iterated over.
    """
    # Keras's own code makes the batches, of what looks like its data; then both are put back.
    inputs, shuffle = adapter._inputs, adapter._shuffle
    adapter._inputs = np.arange(adapter._num_samples)
    adapter._shuffle = shuffle if seed is None else False
    try:
        batches = original(adapter)
    finally:
        adapter._inputs, adapter._shuffle = inputs, shuffle
    return batches if seed is None else _in_order(batches, shuffle, adapter._num_samples, seed)


def _in_order(batches: tf.data.Dataset, shuffle: Any, count: int, seed: int) -> tf.data.Dataset:
    """Shuffle within batches, or over all of them."""
    # TensorFlow would mix a global seed, which may differ by rank, into the common one.
    with eager.no_global_seed():
        draws = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2, True)
    if shuffle == "batch":
        return tf.data.Dataset.zip((batches, draws)).map(_shuffled)
    # One draw for a pass, so that all its batches go through one permutation.
    found = draws.take(1).flat_map(lambda draw: batches.map(_places(draw, count)))
    return found.with_options(batches.options())


def _shuffled(batch: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
    return tf.random.experimental.stateless_shuffle(batch, draw)


def _places(draw: tf.Tensor, count: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function that maps indices below `count` through a random permutation."""
    seed = tf.cast(draw, tf.uint32)  # of 32 bits each

    def places(batch: tf.Tensor) -> tf.Tensor:
        # A bijection of the indices up to its last argument, computed for each index by itself: no
        # rank has to hold the whole order.
        found = tf.random.experimental.index_shuffle(batch, seed, count - 1)
        return tf.ensure_shape(found, batch.shape)

    return places


def _gathered(rows: Any, indices: tf.data.Dataset) -> tf.data.Dataset:
    numbers, leaves = _numbered(rows)
    arrays = InPlace(leaves)

    def take(mine: tf.Tensor, *tensors: Any) -> Any:
        return tf.nest.map_structure(arrays.rows(mine, tensors, _taken).__getitem__, numbers)

    # As inputs, not as constants of the function, which would be copies.
    copies = [tf.data.Dataset.from_tensors(one).repeat() for one in arrays.tensors]
    found = tf.data.Dataset.zip(indices, *copies).map(take, tf.data.AUTOTUNE)
    arrays.keep_for(found)
    # `distribute_prefetched` adds no prefetching of its own.
    return found.prefetch(tf.data.AUTOTUNE)


def _numbered(rows: Any) -> tuple[Any, list[Any]]:
    """Return `rows` with a number for each array; and the arrays in the order of the numbers."""
    arrays: list[Any] = []

    def number(one: Any) -> int | None:
        if isinstance(one, (tuple, list, dict)) and not _is_sparse(one):
            return None
        arrays.append(one)
        return len(arrays) - 1

    return sys.modules["keras.src.tree"].traverse(number, rows), arrays


def _can_be_taken(array: Any) -> bool:
    return isinstance(array, (np.ndarray, tf.Tensor)) or _is_sparse(array)


def _is_sparse(array: Any) -> bool:
    """Whether this is what Keras makes of a sparse array; it has three tensors."""
    return isinstance(array, sys.modules[_SLICING].TensorflowSparseWrapper)


def _taken(array: Any, indices: tf.Tensor) -> Any:
    if _is_sparse(array):
        return sys.modules[_SLICING].slice_tensorflow_sparse_wrapper(array, indices)
    return tf.gather(array, indices)
