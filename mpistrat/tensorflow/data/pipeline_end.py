"""End pipelines that run Python code before the interpreter ends, which could wait for ever.

The end of an iterator waits for the thread that reads its data. A thread that runs Python code,
such as a generator, cannot go on once the interpreter has begun to end: TensorFlow 2.21 hangs
then. Iterators that are left at that time are often an error's, whose traceback holds them.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from mpistrat.cluster.process_end import finalize_and_leave
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase
from mpistrat.tensorflow.data import dataset_parts
from mpistrat.tensorflow.private import data as private_data

__all__ = ["end_with_program"]

_LIMIT_S = 10.0  # for the batch that a generator is making


class _Pipelines:
    """The pipelines of this process that the interpreter would wait for."""

    def __init__(self) -> None:
        self.iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self.are_left = False

    def end(self) -> None:
        """End those with Python code, as far as they can be; note whether some are left."""
        source_of = private_data.source_of
        found = [one for one in self.iterators if dataset_parts.has_python(source_of(one))]
        if not found:
            return
        resources = [one for each in found for one in private_data.taken_resources(each)]
        references = [weakref.ref(one) for one in resources]
        # Its end waits for its thread, and so takes a thread of its own to have a deadline.
        freeing = threading.Thread(target=resources.clear, daemon=True)
        freeing.start()
        freeing.join(_LIMIT_S)
        self.are_left = freeing.is_alive() or any(one() is not None for one in references)

    def leave_if_left(self) -> None:
        """End this process without the interpreter's end if that would wait for pipelines."""
        if not self.are_left:
            return
        sys.stderr.write(
            "[mpistrat] at the end of the program TensorFlow still reads data from Python code,"
            " such as a generator: this process ends without waiting for it\n"
        )
        finalize_and_leave()


def end_with_program() -> None:
    """Let the end of the program end them. To be called once. **Local.**"""
    exit_hooks.watch_errors()
    exit_hooks.watch_statuses()
    pipelines = _Pipelines()
    private_data.on_iterators(pipelines.iterators.add)
    # Before the ranks meet for the last time, as it takes a while.
    exit_hooks.register(Phase.STRATEGIES, pipelines.end)
    # After all else that a program's end has to do.
    exit_hooks.register(Phase.PROCESS, pipelines.leave_if_left)
