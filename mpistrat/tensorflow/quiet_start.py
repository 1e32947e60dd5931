"""Import TensorFlow such that only rank 0 prints its start-up messages.

They say which instructions it uses and which libraries it lacks, on each rank the same. Some come
before TensorFlow has read ``TF_CPP_MIN_LOG_LEVEL``, so standard error is held back meanwhile.
Warnings and errors of all ranks stay.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import IO

from mpistrat.cluster.launcher.launch_variables import expected_rank

__all__ = ["import_quietly"]

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_WARNINGS = "1"
_STDERR = 2
_START = re.compile(
    rb"I\d{4} .*"  # information; what follows are lines that come with it
    rb"|WARNING: All log messages before absl::InitializeLog\(\) is called.*"
    rb"|To enable the following instructions: .*"
)


def import_quietly() -> None:
    """Import TensorFlow; on ranks other than 0 without its start-up messages. **Local.**

    Does nothing if it is there already. Whoever has set ``TF_CPP_MIN_LOG_LEVEL`` sees what that
    variable says.
    """
    if "tensorflow" in sys.modules:
        return
    rank = expected_rank()
    is_quiet = rank is not None and rank[1] > 0 and _VARIABLE not in os.environ
    if is_quiet:
        os.environ[_VARIABLE] = _WARNINGS
    with without_start() if is_quiet else nullcontext():
        importlib.import_module("tensorflow")


@contextmanager
def without_start() -> Iterator[None]:
    """Capture standard error in a block; write it afterwards without the start-up messages."""
    with ExitStack() as stack:
        try:
            # A file: nobody would read a pipe meanwhile, and a full one would block the import.
            held = stack.enter_context(tempfile.TemporaryFile())
            shown = stack.enter_context(os.fdopen(os.dup(_STDERR), "wb"))
        except OSError:  # there is no room, or no standard error
            yield
            return
        # What Python has buffered so far is not part of the start.
        _flush()
        os.dup2(held.fileno(), _STDERR)
        try:
            yield
        finally:
            _flush()
            os.dup2(shown.fileno(), _STDERR)
            # Also after an error of the import, whose text may be among what was held.
            _show(held, shown)


def _flush() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()


def _show(held: IO[bytes], shown: IO[bytes]) -> None:
    held.seek(0)
    shown.writelines(line for line in held if not _START.match(line))
    shown.flush()


import_quietly()
