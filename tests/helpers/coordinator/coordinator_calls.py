"""Make workers and calls of a coordinator without connections, for tests of what it keeps."""

from __future__ import annotations

from typing import Any

from mpistrat.coordinator.arguments import Arguments
from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.coordinator.shipping import Function
from mpistrat.ps.transport.roles import Member

__all__ = ["call_with", "idle_workers"]


def idle_workers(count: int) -> list[WorkerState]:
    """Return workers on the ranks from 1 on, which have no calls."""
    unconnected: Any = None
    members = [Member("worker", index, index + 1) for index in range(count)]
    return [WorkerState(member, unconnected) for member in members]


def call_with(*needed: RemoteValue) -> Call:
    """Return a call that needs the results of other calls."""
    return Call(Function(1, abs), Arguments(needed=needed), RemoteValue(lambda _: None), None)
