"""Make input pipelines stop at once when their iterator is dropped, or with the program."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.data.pipeline_end import end_with_program
from mpistrat.tensorflow.private import data as private_data

__all__ = ["made_untuned", "untuned"]


def untuned(dataset: Any) -> Any:
    """Return the dataset without TensorFlow's search for the best parallelism. **Local.**

    The searching thread sleeps for longer and longer, and a thread that drops a strategy's
    iterator waits for it: after 2 s of data for up to 8 s (TensorFlow 2.21), and all other ranks
    wait, too. Without the search ``tf.data.AUTOTUNE`` means one call a core, at most 16. To have
    it, set ``autotune.enabled`` of ``tf.data.Options``.
    """
    if not isinstance(dataset, tf.data.Dataset) or not tf.executing_eagerly():
        return dataset  # in a graph its options are unknown
    if dataset.options().autotune.enabled is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def made_untuned(dataset_fn: Callable[..., Any], prefetches: bool = False) -> Callable[..., Any]:
    """Wrap a function that makes a dataset: `untuned`; if `prefetches`, one element ahead."""

    @wraps(dataset_fn)
    def make(*args: Any, **kwargs: Any) -> Any:
        dataset = untuned(dataset_fn(*args, **kwargs))
        is_ours = prefetches and isinstance(dataset, tf.data.Dataset)
        return dataset.prefetch(1) if is_ours else dataset

    return make


private_data.wrap_device_datasets(untuned)  # these only hand on what has been made

# An iterator of a strategy that is dropped frees its dataset first, and then waits for the thread
# that reads from it (TensorFlow 2.21, ~MultiDeviceIterator). Keras drops one after its first batch
# in each `fit` and `evaluate`: one in about a thousand crashed on a busy machine.
private_data.keep_datasets_of_iterators()
private_data.tell_iterators_apart()
end_with_program()
