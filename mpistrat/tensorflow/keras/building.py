"""Build a new Keras model from the form of a batch, without reading the data ahead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.own_strategies import has_servers, is_over_ranks

__all__ = ["built_from_own_batch"]


def built_from_own_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``_maybe_symbolic_build``: build from this rank's batch; lengths differ by rank."""

    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        strategy = self.distribute_strategy
        if iterator is None or not (is_over_ranks(strategy) or has_servers(strategy)):
            return original(self, iterator, data_batch)
        if _is_built(self):
            return None
        known = _known_batch(iterator.data_adapter)
        if known is not None:
            return original(self, None, known)
        batch = _first_batch(iterator)
        data_batch = tf.nest.map_structure(
            lambda one: strategy.experimental_local_results(one)[0], batch
        )
        # Without the iterator, from which Keras would take another batch.
        return original(self, None, data_batch)

    return build


def _known_batch(adapter: Any) -> Any:
    """Return the form of a batch of a generator or PyDataset without reading one; else None.

    An iterator would take batches from a generator that can be read once, or from the queue of a
    PyDataset's workers. Keras loses these batches, and errors in them, in one process, too.
    """
    peeked = getattr(adapter, "_first_batches", None)
    batch = peeked[0] if peeked else getattr(adapter, "_output_signature", None)
    leaves = [_unless_optional(one) for one in tf.nest.flatten(batch)]
    has_forms = all(
        one is None or (hasattr(one, "shape") and hasattr(one, "dtype")) for one in leaves
    )
    return None if batch is None or not has_forms else tf.nest.pack_sequence_as(batch, leaves)


def _unless_optional(value: Any) -> Any:
    return None if isinstance(value, tf.OptionalSpec) else value  # so Keras has it for None


def _first_batch(iterator: Any) -> Any:
    step = next((step for _, _, step in iterator), iter(()))
    with suppress(StopIteration):
        return next(step)
    raise UsageError(
        "a dataset without a batch; expected at least one to train or evaluate with. Look for a"
        " filter that keeps nothing, or an iterator that has been used up"
    )


def _is_built(model: Any) -> bool:
    parts = (model._compile_metrics, model._compile_loss, model.optimizer)
    layers = model._flatten_layers()
    return all(part is None or part.built for part in (*layers, *parts))
