"""Hold a free port until a server that has to be told its port opens it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

__all__ = ["held_port"]


@contextmanager
def held_port() -> Iterator[int]:
    """Return a free port that the system gives to no other process meanwhile. **Local.**

    A server that listens may share it: both sockets allow that, and this one does not listen.
    """
    with closing(socket.socket()) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]
