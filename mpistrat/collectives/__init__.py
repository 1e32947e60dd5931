"""Combine arrays over ranks: one communicator, one gate, one file a backend.

A call walks down through these files: communicator (the public face; its collectives are listed
in calls) → operations/<name> (checks the arguments, gives the result its shape) → gate (do all
ranks call the same thing?) → the backend (moves and reduces flat arrays) → work (waits, with a
deadline). What happened is in recorder (the last calls), timeline (all of them) and stacks (what
a rank does that others wait for).
"""

from mpistrat.collectives.base import Backend, Capabilities
from mpistrat.collectives.communicator import Communicator
from mpistrat.collectives.diagnosis.recorder import CallRecord
from mpistrat.collectives.registry import available_backends, register_backend
from mpistrat.collectives.work import Work

__all__ = [
    "Backend",
    "CallRecord",
    "Capabilities",
    "Communicator",
    "Work",
    "available_backends",
    "register_backend",
]
