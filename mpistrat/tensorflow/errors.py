"""Errors of collectives as TensorFlow passes them on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from mpistrat.errors import CommunicationError, MpistratError

__all__ = ["CollectiveError", "passed_on"]


_InvalidArgumentError: Any = tf.errors.InvalidArgumentError


class CollectiveError(_InvalidArgumentError, CommunicationError, ValueError):  # type: ignore[misc]
    """A collective failed, in eager mode or in a graph; its cause says more.

    A graph hands on the classes that Python and TensorFlow have in common: ValueError as
    InvalidArgumentError.
    """

    def __init__(self, message: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)


@contextmanager
def passed_on() -> Iterator[None]:
    """Raise an error of ours as one that a graph hands on. **Local.**"""
    try:
        yield
    except MpistratError as error:
        raise CollectiveError(str(error)) from error
