"""A stand-in for Google's metadata server and its Cloud TPU API, on a port of this machine."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

__all__ = ["Cloud", "pretend_cloud"]

_METADATA = {"project/project-id": "p", "instance/zone": "projects/1/zones/z"}
_NODES: dict[str, Any] = {
    "projects/p/locations/z/nodes/ready": {
        "state": "READY",
        "networkEndpoints": [
            {"ipAddress": "10.0.0.1", "port": "8470"},
            {"ipAddress": "10.0.0.2", "port": "8470"},
        ],
    },
    "projects/p/locations/z/nodes/creating": {"state": "CREATING"},
}
_OF_THIS_MACHINE = ("TPU_NAME", "TPU_CONFIG", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")


@contextmanager
def pretend_cloud(patch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Serve for this block, and have TensorFlow ask here, of an environment that names no TPU."""
    for name in _OF_THIS_MACHINE:
        patch.delenv(name, raising=False)
    cloud = Cloud()
    patch.setenv("GCE_METADATA_HOST", cloud.host)
    try:
        yield cloud
    finally:
        cloud.server.shutdown()
        cloud.server.server_close()


class Cloud:
    """Both servers; also the client of the API, as TPUClusterResolver's ``service`` is called.

    Attributes
    ----------
    metadata
        What the metadata server says, by path.
    delay_s
        How long it waits before it answers, seconds.
    host
        Its address.
    """

    def __init__(self) -> None:
        self.metadata, self.delay_s = dict(_METADATA), 0.0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(cloud.delay_s)
                body = cloud._answer(self.path, self.headers)
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write((body or "").encode())

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _answer(self, path: str, headers: Any) -> str | None:
        start = "/computeMetadata/v1/"
        if path.startswith(start) and headers["Metadata-Flavor"] == "Google":
            return self.metadata.get(path.removeprefix(start))
        node = _NODES.get(path.removeprefix("/v1/"))
        return None if node is None else json.dumps(node)

    # As Google's client: service.projects().locations().nodes().get(name=...).execute()
    def projects(self) -> Cloud:
        """Return the client."""
        return self

    locations = nodes = projects

    def get(self, name: str) -> Cloud:
        """Return the request for a node."""
        self._url = f"http://{self.host}/v1/{name}"
        return self

    def execute(self) -> Any:
        """Return what the API says of the node that was asked for."""
        with urllib.request.urlopen(self._url, timeout=5) as answer:
            return json.loads(answer.read())
