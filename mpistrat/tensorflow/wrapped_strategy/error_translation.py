"""Translate TensorFlow's exceptions into mpistrat's; each keeps its TensorFlow base."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from mpistrat import errors
from mpistrat.collectives import Communicator
from mpistrat.tensorflow.errors import WorkerLostError, of_both

__all__ = ["ErrorTranslation"]

_LOST = (
    "a task of TensorFlow's cluster has gone or was restarted: look at its log, then start the"
    " program again from its last checkpoint"
)
_LATE = (
    "a task of TensorFlow's cluster does not answer: see that it runs, and that its port is open"
)


class ErrorTranslation:
    """Of the errors of one strategy.

    Parameters
    ----------
    tf_strategy
        Named in the texts.
    communicator
        Says which rank this is.
    """

    def __init__(self, tf_strategy: tf.distribute.Strategy, communicator: Communicator) -> None:
        rank = f"rank {communicator.rank}/{communicator.size}"
        self._where = f"{type(tf_strategy).__name__} of TensorFlow on {rank}"

    @contextmanager
    def of(self, what: str, has_functions: bool = False) -> Iterator[None]:
        """Translate what is raised in this block. **Local.**

        With `has_functions` it calls the user's, whose errors are passed on as they are, unless
        TensorFlow has lost its cluster.
        """
        try:
            yield
        except (errors.MpistratError, NotImplementedError):
            raise
        except Exception as error:
            ours = self._ours(error, f"{what} by {self._where}: {error}", has_functions)
            if ours is None:
                raise
            raise ours from error

    def _ours(self, error: Exception, text: str, has_functions: bool) -> Any:
        if isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)):
            # A program may catch TensorFlow's class, so each keeps its own.
            kind = WorkerLostError if isinstance(error, tf.errors.UnavailableError) else None
            return of_both(errors.PeerLostError(f"{text}; {_LOST}"), kind)
        if isinstance(error, tf.errors.DeadlineExceededError):
            return of_both(errors.CommunicationTimeoutError(f"{text}; {_LATE}"))
        ours: errors.UsageError | None = None
        if isinstance(error, TypeError):
            ours = errors.ArgumentTypeError(text)
        elif isinstance(error, (ValueError, tf.errors.InvalidArgumentError)):
            ours = errors.UsageError(text)
        return None if ours is None or has_functions else of_both(ours)
