"""The clusters of parameter servers that this process has open as their chief.

Strategies over one resolver share one: its servers serve until the last of them is closed.
"""

from __future__ import annotations

from typing import Any

from mpistrat.tensorflow.servers.tasks import Tasks

__all__ = ["Cluster", "cluster_of"]


class Cluster:
    """A cluster, and the number of open strategies over it.

    Parameters
    ----------
    resolver, comm, backend
        As of `ParameterServerStrategy`.

    Notes
    -----
    **Collective**: the servers meet it.

    Attributes
    ----------
    tasks
        The ranks and their roles.
    addresses
        Of the servers, by job.
    tf_resolver
        What TensorFlow knows it by, once a strategy has connected.
    servers
        Those in this process, if it has all roles.
    """

    def __init__(self, resolver: Any, comm: Any, backend: str) -> None:
        self._key = _key(resolver, comm)
        self.tasks = Tasks(resolver, comm, backend, makes="ParameterServerStrategy")
        self.addresses = self.tasks.published("")
        self.tf_resolver: Any = None
        self.servers: Any = None
        self._users = 0

    def is_for(self, resolver: Any, comm: Any) -> bool:
        """Whether strategies over `resolver` use this one, which must be in working order."""
        health = self.tasks.communicator.health
        return not health.closed and health.broken is None and self._key == _key(resolver, comm)

    def join(self) -> None:
        """Count a strategy. **Local.**"""
        self._users += 1
        if self not in _open:
            _open.append(self)

    def leave(self) -> bool:
        """Count a strategy no more; return whether it was the last one. **Local.**"""
        self._users -= 1
        if self._users == 0:
            _open.remove(self)
        return self._users == 0


_open: list[Cluster] = []


def cluster_of(resolver: Any, comm: Any, backend: str) -> Cluster:
    """Return the open cluster of a resolver; if there is none, make it. **Collective** then."""
    known = (cluster for cluster in _open if cluster.is_for(resolver, comm))
    return next(known, None) or Cluster(resolver, comm, backend)


def _key(resolver: Any, comm: Any) -> tuple[Any, ...]:
    given = comm if comm is not None else getattr(resolver, "comm", None)
    numbers = [getattr(resolver, name, None) for name in ("num_ps", "num_evaluators")]
    return type(resolver), given, *numbers
