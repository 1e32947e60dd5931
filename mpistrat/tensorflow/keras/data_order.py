"""Hook Keras's epochs: predict in the data's order, and compare data between ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.data import sharding
from mpistrat.tensorflow.data.order_check import order_check_of
from mpistrat.tensorflow.own_strategies import is_over_ranks

__all__ = ["compared_at_end", "compared_now_and_then", "in_data_order"]

_EARLY, _EVERY = 16, 1000  # steps of an epoch after which data are compared before its end
_PASS = "_mpistrat_pass"  # of an epoch's iterator: the number of its pass over the data


def in_data_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Model.predict``: divide rows, not files, so that results come in the data's order."""

    def predict(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.distribute_strategy
        if not is_over_ranks(strategy):
            return original(self, x, *args, **kwargs)
        with sharding.in_order():
            return original(self, sharding.divided_again(x, strategy), *args, **kwargs)

    return predict


def compared_now_and_then(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the generator of an epoch's steps: compare the ranks' data after some of them."""

    def enumerate_iterator(self: Any) -> Iterator[Any]:
        check = order_check_of(self._distributed_dataset)
        if check is None:
            yield from original(self)
            return
        setattr(self, _PASS, None)
        due = _EARLY
        for number, step in enumerate(original(self)):
            steps = number * self.steps_per_execution
            if number == 1:  # the first step was read: the newest pass is this epoch's
                setattr(self, _PASS, check.newest)
            if steps >= due:
                check.compare(number=getattr(self, _PASS))
                due = (steps // _EVERY + 1) * _EVERY
            yield step

    return enumerate_iterator


def compared_at_end(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the context of an epoch's steps, which notices the end of the data."""

    @contextmanager
    def catch_stop_iteration(self: Any) -> Iterator[None]:
        is_end = False
        with original(self):
            try:
                yield
            except (StopIteration, tf.errors.OutOfRangeError):
                is_end = True
                raise
        # Only after the end of the data, or of the epoch: with another error the ranks may be
        # apart.
        check = order_check_of(self._distributed_dataset)
        if check is not None:
            check.compare(is_end, getattr(self, _PASS, None))

    return catch_stop_iteration
