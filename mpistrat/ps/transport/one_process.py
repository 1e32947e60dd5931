"""Run a job with parameter servers in one process, with threads as the servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mpistrat import config
from mpistrat.errors import PeerLostError
from mpistrat.ps.server.shard_server import ShardServer
from mpistrat.ps.transport.endpoint import Endpoint, embedded_endpoints
from mpistrat.ps.transport.roles import Roster

__all__ = ["Embedded"]


class Embedded:
    """The endpoints of all members of a job in this process, with a thread for each ps.

    Attributes
    ----------
    chief
        The chief's endpoint.
    workers
        Those of the workers; their threads are started by the caller.
    """

    def __init__(self, roster: Roster) -> None:
        endpoints = embedded_endpoints(roster)
        self.chief = endpoints[roster.chief]
        self.workers: list[Endpoint] = [endpoints[one] for one in roster.workers]
        self._threads: list[threading.Thread] = []
        for member in roster.ps:
            self.start(endpoints[member], _serve)

    def start(self, endpoint: Endpoint, play: Callable[[Endpoint], None]) -> None:
        """Let a thread play the role of an endpoint; however it ends, the others see it."""

        def run() -> None:
            try:
                play(endpoint)
            except PeerLostError:
                pass  # the chief has left a job that failed; nobody needs to be told
            finally:
                endpoint.close()

        name = f"mpistrat-{endpoint.me.task_type}-{endpoint.me.task_id}"
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait until the servers have ended, which they do when the chief says so."""
        for thread in self._threads:
            thread.join(config.timeout_s())
        for endpoint in self.workers:
            endpoint.close()  # those that no thread has used


def _serve(endpoint: Endpoint) -> None:
    ShardServer(endpoint).serve()
