"""Combine arrays over ranks: one communicator, one gate, one file a backend.

A call walks down through these files: communicator (the public face; its collectives are listed
in methods/) → operations/<name> (checks the arguments, gives the result its shape) →
checking/gate (do all ranks call the same thing?) → backends/<name> (moves and reduces flat
arrays) → progress/engine (waits, with a deadline). What happened is in health/: recorder (the last
calls), timeline (all of them) and stacks (what a rank does that others wait for).
"""

from mpistrat.collectives.backends.base import Backend, Capabilities
from mpistrat.collectives.backends.registry import available_backends, register_backend
from mpistrat.collectives.communicator import Communicator
from mpistrat.collectives.health.call_record import CallRecord
from mpistrat.collectives.progress.work import Work

__all__ = [
    "Backend",
    "CallRecord",
    "Capabilities",
    "Communicator",
    "Work",
    "available_backends",
    "register_backend",
]
