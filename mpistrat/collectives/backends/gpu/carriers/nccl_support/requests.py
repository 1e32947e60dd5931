"""Queue transfers of NCCL, and wait for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from mpistrat.collectives.backends.gpu.streams import EventRequest
from mpistrat.errors import CommunicationError

__all__ = ["NcclRequest", "group", "nccl_error"]

_FIND_LOST_S = 2.0


class NcclRequest:
    """Complete once NCCL's work is done; raises what NCCL has found out meanwhile.

    It does so after a moment: NCCL notices at once that some rank is lost, but not which one,
    which whoever waits for this finds out meanwhile (health/peers.py).
    """

    def __init__(self, comm: Any, event: Any, error: Exception | None = None) -> None:
        self._comm, self._event = comm, EventRequest(event)
        self._error, self._since = error, time.monotonic()

    def Test(self) -> bool:  # noqa: N802 - see Request
        """See `Request.Test`."""
        if self._error is None:
            try:
                self._comm.check_async_error()
                return self._event.Test()
            except nccl_error() as error:
                self._error, self._since = error, time.monotonic()
        self._event.Test()  # raises if it is this rank's GPU that has failed: it says how, at once
        if time.monotonic() - self._since < _FIND_LOST_S:
            return False
        raise CommunicationError(
            f"NCCL: {self._error}; NCCL_DEBUG=INFO shows more, MPISTRAT_GPU_CARRIER=staged does"
            " without"
        ) from self._error


@cache
def nccl_error() -> type[Exception]:
    """Return the type of NCCL's errors."""
    from cupy.cuda import nccl

    found: type[Exception] = nccl.NcclError
    return found


@contextmanager
def group() -> Iterator[None]:
    """Make one transfer of the calls in the block."""
    from cupy.cuda import nccl

    nccl.groupStart()
    try:
        yield
    finally:
        nccl.groupEnd()
