"""Exchange tasks and outcomes between pytest and the ranks of a job, through files.

A task, and what a rank makes of it, are files of a private folder. A file appears complete (it is
written beside its place and renamed), is written once, and is read by polling.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

from mpistrat.system.waiting import wait_until

__all__ = [
    "POLL_S",
    "Outcome",
    "Task",
    "Verdict",
    "body_file",
    "done_file",
    "get",
    "pauses",
    "put",
    "ready_file",
    "task_file",
    "wait_for",
]

POLL_S = 0.002
"""Seconds between two looks at a file that is awaited for long."""

_QUICK_POLL_S = 0.0002
_QUICK_POLLS = 40
_IDLE_POLL_S = 0.01
_IDLE_AFTER = 1000

Verdict = Literal["passed", "skipped", "failed"]


@dataclass(frozen=True)
class Task:
    """A function for every rank to call.

    Attributes
    ----------
    file, module
        The file that holds it and the name under which to import that.
    qualname
        ``function`` or ``Class.function``; the class is instantiated first. Empty if the file is
        only to be imported.
    kwargs
        Pickled keyword arguments.
    timeout_s
        Seconds that the barrier after it may take.
    sys_path
        Where to import from.
    """

    file: str
    module: str
    qualname: str
    kwargs: bytes
    timeout_s: float
    sys_path: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a task on one rank; `text` is the reason or the traceback."""

    verdict: Verdict
    text: str = ""


def ready_file(spool: Path, rank: int) -> Path:
    """Return where a rank says that MPI is up (or why not)."""
    return spool / f"ready.rank{rank}"


def body_file(spool: Path, number: int, rank: int) -> Path:
    """Return where a rank says what became of the function."""
    return spool / f"task{number}.rank{rank}.body"


def done_file(spool: Path, number: int, rank: int) -> Path:
    """Return where a rank says that it has passed the barrier after the function."""
    return spool / f"task{number}.rank{rank}.done"


def task_file(spool: Path, number: int) -> Path:
    """Return where a task is handed over; None in it ends the job."""
    return spool / f"task{number}"


def put(file: Path, value: Any) -> None:
    """Write a value so that the file is complete from the moment it can be seen."""
    # The process id keeps the drafts of two writers apart; the dot keeps them out of patterns.
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_bytes(pickle.dumps(value))
    draft.replace(file)


def get(file: Path) -> Any:
    """Return the value in a file that :func:`put` has written, or None if there is none yet."""
    try:
        return pickle.loads(file.read_bytes())
    except FileNotFoundError:
        return None


def pauses() -> Iterator[float]:
    """Yield the seconds between two looks: few at first, since most tests take milliseconds.

    They are more where a job is kept while the tests run in another.
    """
    yield from repeat(_QUICK_POLL_S, _QUICK_POLLS)
    yield from repeat(POLL_S, _IDLE_AFTER)
    yield from repeat(_IDLE_POLL_S)


def wait_for(file: Path) -> Any:
    """Return the value in a file as soon as there is one; whoever calls is ended if none comes."""
    wait_until(file.exists, math.inf, pauses())
    return get(file)
