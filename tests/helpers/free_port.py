"""Find a port of this machine that a server can open a moment later."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from mpistrat.errors import ClusterError

__all__ = ["LOCAL_HOST", "free_port"]

LOCAL_HOST = "127.0.0.1"
_PORTS = range(20000, 32000)  # the system hands none of them to anybody by itself
_MOST_TRIES = 100


def free_port(ports: Sequence[int] = _PORTS) -> int:
    """Return one of `ports` of this machine that nobody listens on. **Local.**

    Raises
    ------
    ClusterError
        None of those that were tried is free.
    """
    tried = random.SystemRandom().sample(ports, min(len(ports), _MOST_TRIES))
    troubles = []
    for port in tried:
        trouble = _why_taken(port)
        if trouble is None:
            return port
        troubles.append(trouble)
    raise ClusterError(
        f"found no free port on {LOCAL_HOST}: tried {len(tried)} of {min(ports)} to {max(ports)},"
        f" the last was {tried[-1]} ({troubles[-1]}); end programs that listen there"
    )


def _why_taken(port: int) -> OSError | None:
    with socket.socket() as probe:
        try:
            probe.bind((LOCAL_HOST, port))
        except OSError as error:
            return error
    return None
