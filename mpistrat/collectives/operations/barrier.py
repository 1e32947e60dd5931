"""Wait until all ranks are here: to go on together, or to part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.health.peers import Peers

__all__ = ["BARRIER", "barrier", "close"]

BARRIER = Signature("barrier")
_CLOSE = Signature("close")
_NOTHING = np.empty(0)


def barrier(gate: Gate) -> Steps:
    """Cross the gate, which is all that a barrier is."""
    # A backend that carries headers reduces nothing with it, as the call that is its last
    # transfer: what is queued behind a bare crossing would have to wait for Python.
    transfer = partial(gate.backend.allreduce, _NOTHING, _NOTHING, "sum")
    yield from gate.carry(BARRIER, transfer, is_empty=True)


def close(gate: Gate) -> Steps:
    """Cross the gate for the last time, and take in what the peers sent besides."""
    health = gate.health
    if gate.device_backend is not None:
        yield from gate.device_backend.leave()
    # Before the header shows the number of notices: none may be sent after that.
    health.closing = True
    yield from gate.cross(_CLOSE, extra=health.peers.announced)
    yield _Notices(health.peers, gate.extras.tolist())
    health.closed = True


class _Notices:
    """The request of notices that are still on their way.

    What is left behind when a communicator is freed, a later one could get: MPI libraries use
    their numbers again.
    """

    def __init__(self, peers: Peers, counts: Sequence[int]) -> None:
        self._peers, self._counts = peers, counts

    def Test(self) -> bool:  # noqa: N802 - see Request
        return self._peers.has_heard(self._counts)
