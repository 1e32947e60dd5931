"""Make the communicator of a job with parameter servers; say what ranks must call for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from mpistrat.cluster import ended_ranks
from mpistrat.collectives import Communicator
from mpistrat.errors import CommunicationTimeoutError, PeerLostError
from mpistrat.system.log import get_logger

__all__ = ["open_job"]

_LOG = get_logger(__name__)
_NEEDS = (
    "the chief makes a ParameterServerStrategy(resolver) while each other rank calls"
    " Server(resolver).join()"
)
_STILL_OPEN = (
    "a ParameterServerStrategy of this program is still open, and the other ranks may be serving"
    " it: close() it before the next one is made"
)
_WARN_AFTER_S = 5.0  # servers that make theirs at the same time are there by then


def open_job(comm: Any, backend: str, has_open: bool = False) -> Communicator:
    """Return a communicator between all ranks of a job. **Collective.**

    Parameters
    ----------
    comm, backend
        As of `Communicator`.
    has_open
        Whether this rank is the chief of another job that is not over.

    Raises
    ------
    CommunicationTimeoutError
        Not all ranks came.
    PeerLostError
        A rank can never come, as its program has ended.
    """
    try:
        with _warning_later() if has_open else nullcontext():
            return Communicator(comm, backend)
    except CommunicationTimeoutError as error:
        text = f"{error}; {_STILL_OPEN if has_open else _NEEDS}"
        raise CommunicationTimeoutError(text, error.missing) from error
    except PeerLostError as error:
        if error.world_rank not in ended_ranks.exit_statuses():
            raise  # it has failed, and said why
        raise PeerLostError(f"{error}; {_NEEDS}", error.rank, error.world_rank) from error


@contextmanager
def _warning_later() -> Iterator[None]:
    """Warn of the job that is open, if the block takes long."""
    timer = threading.Timer(_WARN_AFTER_S, _LOG.warning, (_STILL_OPEN,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
