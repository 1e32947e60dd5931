"""Cross the gate for a call whose data another library carries, and wait for that library."""

from __future__ import annotations

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.outside_call import OutsideCall

__all__ = ["outside"]


def outside(gate: Gate, signature: Signature, call: OutsideCall) -> Steps:
    """See `Communicator.start_outside`."""
    yield from gate.cross(signature)
    call.arrive()
    yield call
