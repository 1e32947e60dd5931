"""Run a function on a parameter server, next to its shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import Run

__all__ = ["ServerHandle"]


@dataclass(frozen=True)
class ServerHandle:
    """One ps, reached by a member's connections.

    Attributes
    ----------
    client
        The member's.
    ps
        The index of the ps.
    """

    client: Client
    ps: int

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what ``function(context, *arguments)`` returns on the ps.

        Parameters
        ----------
        function
            One that can be imported. The ps does nothing else until it returns; its
            `ServerContext` has the shards.

        Raises
        ------
        Exception
            What it raised, or as for ``Client.ask``.
        """
        return self.client.ask(self.ps, Run(function, arguments))
