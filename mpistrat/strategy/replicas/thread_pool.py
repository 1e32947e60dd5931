"""Keep threads for the next call, since starting one costs more than a short step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["run_in_pool"]


class _PooledThread(threading.Thread):
    """A thread that runs one task after another, and is idle in between."""

    def __init__(self) -> None:
        super().__init__(name="mpistrat-replica", daemon=True)
        self.tasks: SimpleQueue[Callable[[], Callable[[], None]]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            announce = self.tasks.get()()
            _idle.append(self)  # before announcing, so that the caller's next task finds it
            announce()


_idle: list[_PooledThread] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork


def run_in_pool(task: Callable[[], Callable[[], None]]) -> None:
    """Run `task` in an idle or a new thread. **Local**, does not wait.

    Parameters
    ----------
    task
        Must not raise. It returns a function that announces its end; the thread calls it when it
        is idle again.
    """
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _PooledThread()
    thread.tasks.put(task)
