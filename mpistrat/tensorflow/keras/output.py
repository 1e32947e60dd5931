"""Let Keras print and log once, not on every rank: progress bars, tables, event files.

Rank 0 does all of it. On other ranks the callbacks run too but write nowhere: subclasses in a
program find all attributes set, and read the model, which may be a collective, on every rank.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from mpistrat import config
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow import shared_files
from mpistrat.tensorflow.own_strategies import is_over_ranks
from mpistrat.tensorflow.private import api as private_api

__all__ = ["end_together", "quiet_bars", "to_nowhere", "unless_other", "writes_nothing"]

_LOG = get_logger(__name__)
_END = (
    "the end of fit: all ranks wait until each one's callbacks, such as on_train_end, have"
    " returned; do what takes longer after fit, on all ranks, or raise MPISTRAT_TIMEOUT; if others"
    " still train, set model.stop_training on all ranks alike"
)
_TIMES_LONGER = 12  # than any other wait: an hour if MPISTRAT_TIMEOUT is not set


def _is_other(model: Any) -> bool:
    """Whether a model trains on several ranks, of which this is not the first."""
    strategy: Any = getattr(model, "distribute_strategy", None)
    return is_over_ranks(strategy) and not strategy.is_chief


def quiet_bars(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the making of a list of callbacks: ``verbose="auto"`` is 0 on ranks other than 0."""
    signature = inspect.signature(original)

    def init(*args: Any, **kwargs: Any) -> None:
        told = signature.bind(*args, **kwargs)
        model, params = told.arguments.get("model"), told.arguments.get("params", {})
        if params.get("verbose") == "auto":
            if _is_other(model):
                params["verbose"] = 0
                told.arguments["add_progbar"] = False
            elif is_over_ranks(getattr(model, "distribute_strategy", None)):
                _say_how_to_see_others()
        original(*told.args, **told.kwargs)

    return init


def _say_how_to_see_others() -> None:
    warn_once(
        _LOG,
        "output of rank 0",
        "progress bars, TensorFlow's start and this log are rank 0's only; to see the other"
        " ranks': verbose=1, TF_CPP_MIN_LOG_LEVEL=0, MPISTRAT_LOG_RANKS=all",
    )


def _warn_if_alone(strategy: Any) -> None:
    """Warn if a model is in no strategy at all, although one of ours is open over ranks."""
    size = shared_files.num_ranks()
    if size > 1 and private_api.is_default_strategy(strategy):
        warn_once(
            _LOG,
            "fit of one rank",
            f"fit of a model that was made outside of strategy.scope(): each of {size} ranks"
            " trains one of its own; make it in the scope if they are to train one together",
        )


def end_together(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fit``: end with a barrier, after which the files of rank 0's callbacks are there.

    Its deadline is long: rank 0 alone may upload a model, and a timeout would end the job after
    all of the training. A rank that has ended or failed is noticed at once.
    """

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        _warn_if_alone(self.distribute_strategy)
        result = original(self, *args, **kwargs)
        strategy = self.distribute_strategy
        if is_over_ranks(strategy):
            with strategy.communicator.labelled(_END):
                strategy.communicator.barrier(timeout=_TIMES_LONGER * config.timeout_s())
        return result

    return fit


def to_nowhere(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``CSVLogger.on_train_begin``: only rank 0 opens the file, others ``os.devnull``."""

    def on_train_begin(self: Any, logs: Any = None) -> None:
        name = self.filename
        if _is_other(self.model):
            self.filename = os.devnull
        try:
            original(self, logs)
        finally:
            self.filename = name

    return on_train_begin


def unless_other(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of a callback that only rank 0 is to call."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if _is_other(self.model) else original(self, *args, **kwargs)

    return method


def writes_nothing(original: property) -> property:
    """Wrap a property that makes a writer of summaries."""

    @wraps(original.fget)  # type: ignore[arg-type]
    def writer(self: Any) -> Any:
        if _is_other(self.model):
            return tf.summary.create_noop_writer()
        return original.fget(self)  # type: ignore[misc]

    return property(writer)
