"""Base of the peers: another library's collectives, called on a problem's buffers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from mpistrat import Communicator
from mpistrat.bench.harness.problem import Problem

__all__ = ["Peer", "load", "why_not"]


class Peer(Protocol):
    """Another library, from its start to its end."""

    name: str
    takes_lists: bool  # whether there is a call for ``allreduce_many``

    def missing(self) -> str | None:
        """Return why this peer cannot be used here, or None if it can. **Local.**"""
        ...

    def setup(self, communicator: Communicator) -> None:
        """Start the library; `communicator` carries what its ranks must know. **Collective.**"""
        ...

    def function(self, problem: Problem) -> Callable[[], object] | None:
        """Return a blocking call that solves `problem`, or None if the library has none.

        What it returns is the answer; if that is None, the answer is in ``problem.recv``.
        **Local**, and None on all ranks or on none.
        """
        ...

    def teardown(self) -> None:
        """Stop the library. **Collective.**"""
        ...


def why_not(module: str) -> str | None:
    """Return why `module` cannot be imported, or None if it can. **Local.**"""
    try:
        load(module)
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed"
    except (ImportError, OSError, RuntimeError) as error:  # installed, but broken
        return f"{module} cannot be imported: {error}"
    return None


def load(module: str) -> Any:
    """Import an optional library, which type checkers need not know."""
    return importlib.import_module(module)
