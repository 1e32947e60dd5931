"""Tell whether the code runs in a function on a worker, and refuse collectives there."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mpistrat.errors import ContextError

if TYPE_CHECKING:
    from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy

__all__ = ["refuse_collective", "working_for"]

working_for: ContextVar[ParameterServerStrategy | None] = ContextVar(
    "mpistrat_working_for", default=None
)
"""The strategy of the worker whose function this thread runs, or None."""


def refuse_collective(what: str, comm: Any = None, *, is_local: bool = False) -> None:
    """Raise in a function on a worker, where the other ranks do not call the same.

    Parameters
    ----------
    what
        The object that the function makes, for the message.
    comm
        The communicator that it is given: allowed, since its ranks may all make this call.
    is_local
        True allows it in one process whose threads play the roles.
    """
    strategy = working_for.get()
    if strategy is None or comm is not None:
        return
    endpoint = strategy.extended.client.endpoint
    # Where threads of one process play the roles, all members have rank 0.
    if is_local and not any(member.rank for member in endpoint.roster.members):
        return
    raise ContextError(
        f"{what} made in a function on {endpoint.me}, where the other ranks"
        " do not make theirs; make it on the chief, or on all ranks, before functions are"
        " scheduled. In the function mpistrat.get_strategy() is the chief's strategy"
    )
