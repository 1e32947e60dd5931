"""Leave one word for the job's script: whether the job is to be started again, or is done."""

from __future__ import annotations

import os
from pathlib import Path

from mpistrat import config
from mpistrat.errors import UsageError
from mpistrat.system import log
from mpistrat.system.files import atomic_files

__all__ = ["DONE", "REQUEUE", "check", "leave"]

_LOG = log.get_logger(__name__)

REQUEUE = "REQUEUE"
"""Start the job again: it was stopped before its program was done."""

DONE = "DONE"
"""The program is done."""


def check() -> None:
    """Raise unless the file of ``MPISTRAT_OUTCOME_FILE`` can be written. **Local.**

    Raises
    ------
    UsageError
        Its folder is missing or may not be written, or it is a folder itself.
    """
    path = _path()
    if path is not None and (
        path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK)
    ):
        raise UsageError(
            f"MPISTRAT_OUTCOME_FILE={str(path)!r}: expected a file in a folder that exists and"
            " that this program may write to; fix it, or unset it to leave no word for the script"
        )


def leave(word: str) -> bool:
    """Write `word` to the file, as a whole; return False if that failed, which is logged.

    **Local.** Without ``MPISTRAT_OUTCOME_FILE`` it does nothing.
    """
    path = _path()
    try:
        if path is not None:
            atomic_files.replace_whole(path, f"{word}\n".encode())
    except OSError as error:  # a job that has saved is to end well all the same
        log.warn_alone(
            _LOG, f"{word} could not be written to {path}: {error}; do by hand what it asks for"
        )
        return False
    return True


def _path() -> Path | None:
    text = config.outcome_file()
    return Path(text).absolute() if text else None
