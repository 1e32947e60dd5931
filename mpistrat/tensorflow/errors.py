"""Errors of collectives as TensorFlow passes them on."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mpistrat.errors import CommunicationError

__all__ = ["CollectiveError"]


_InvalidArgumentError: Any = tf.errors.InvalidArgumentError


class CollectiveError(_InvalidArgumentError, CommunicationError, ValueError):  # type: ignore[misc]
    """A collective failed, in eager mode or in a graph; its cause says more.

    A graph hands on the classes that Python and TensorFlow have in common: ValueError as
    InvalidArgumentError.
    """

    def __init__(self, message: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)
