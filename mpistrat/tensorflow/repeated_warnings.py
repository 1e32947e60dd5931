"""Show warnings that TensorFlow and Keras give alike on all ranks once, on rank 0."""

from __future__ import annotations

import logging
import warnings

from mpistrat import config
from mpistrat.collectives import Communicator

__all__ = ["leave_to_first_rank"]

_OF_KERAS = r"`shuffle=True` was passed, but will be ignored|Your input ran out of data"
_OF_TENSORFLOW = "triggered tf.function retracing"


def leave_to_first_rank(communicator: Communicator) -> None:
    """Drop these warnings on ranks that are not to log. Idempotent. **Local.**"""
    ranks = config.log_ranks()
    if communicator.rank == 0 or ranks is None or communicator.rank in ranks:
        return
    warnings.filterwarnings("ignore", _OF_KERAS, UserWarning)
    logging.getLogger("tensorflow").addFilter(_is_shown)


def _is_shown(record: logging.LogRecord) -> bool:
    return _OF_TENSORFLOW not in str(record.msg)
