"""Notice a cloud's warning that this machine is about to be taken away."""

from __future__ import annotations

import os
import threading
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from mpistrat.system.log import get_logger, warn_once

__all__ = ["PreemptionWatch"]

_LOG = get_logger(__name__)
_QUESTIONS = {  # what is asked, and the answers of Google's Compute Engine that tell of an end
    "instance/preempted": "TRUE",
    "instance/maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE",
}
_EVERY_S, _PATIENCE_S = 5.0, 2.0


class PreemptionWatch:
    """A thread that polls this machine's metadata server and calls a function once.

    Parameters
    ----------
    hook
        Is called with what was announced, such as ``"instance/preempted"``, in that thread. What
        it raises is logged.
    every_s
        Between questions.

    Notes
    -----
    **Local.** The server is ``metadata.google.internal``, or what GCE_METADATA_HOST says. One that
    does not answer is asked again; the first time that is logged.
    """

    def __init__(self, hook: Callable[[str], object], every_s: float = _EVERY_S) -> None:
        self._hook, self._every_s = hook, every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="mpistrat preemption", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the watch, without waiting for a pending answer. Idempotent."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            announced = next((what for what in _QUESTIONS if self._is_announced(what)), None)
            if announced is not None:
                self._call(announced)
                return
            # Not time.sleep: close() ends the pause.
            self._is_over.wait(self._every_s)

    def _call(self, announced: str) -> None:
        try:
            self._hook(announced)
        except Exception:  # noqa: BLE001 - the user's; nobody waits for this thread
            _LOG.exception("the hook for the preemption of this machine failed")

    def _is_announced(self, what: str) -> bool:
        try:
            return _asked(what) == _QUESTIONS[what]
        except (OSError, HTTPException, ValueError) as error:  # what is asked may be any server
            warn_once(
                _LOG,
                "metadata server",
                f"no metadata server answers for {what} ({error}): a preemption of this machine"
                " may come without notice; GCE_METADATA_HOST says where it is",
            )
            return False


def _asked(what: str) -> str:
    """Return the answer of the metadata server."""
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/{what}"
    # Google's server refuses requests without this header.
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text.strip()
