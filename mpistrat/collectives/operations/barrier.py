"""Wait until all ranks are here: to go on together, or to part."""

from mpistrat.collectives.base import Steps
from mpistrat.collectives.fingerprint import Signature
from mpistrat.collectives.gate import Gate

__all__ = ["barrier", "close"]

_BARRIER = Signature("barrier")
_CLOSE = Signature("close")


def barrier(gate: Gate) -> Steps:
    """Cross the gate, which is all that a barrier is."""
    yield from gate.cross(_BARRIER)


def close(gate: Gate) -> Steps:
    """Cross the gate for the last time, and take in what the peers sent besides."""
    gate.closing = True
    yield from gate.cross(_CLOSE, extra=gate.peers.announced)
    yield from gate.collect(gate.extras.tolist())
    gate.closed = True
