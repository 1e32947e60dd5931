"""`run_ranks`: call a function on ranks that are threads, and never hang."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from mpistrat.collectives.backends.threads import ThreadWorld

__all__ = ["RankError", "run_ranks"]

T = TypeVar("T")

_FAILURE_GRACE_S = 5.0
"""Once a rank has failed, how long the others may go on: they often wait for it in vain."""


class RankError(AssertionError):
    """A rank failed, or did not end.

    Attributes
    ----------
    errors
        What the ranks raised, by rank, in the order in which they did. The first is the cause.
    """

    def __init__(self, message: str, errors: dict[int, BaseException]) -> None:
        super().__init__(message)
        self.errors = errors


def run_ranks(
    size: int, function: Callable[..., T], *args: Any, timeout_s: float = 20.0
) -> list[T]:
    """Call ``function(comm, *args)`` on `size` threads and return what each returned, by rank.

    Parameters
    ----------
    size
        Number of ranks.
    function
        Gets the `ThreadComm` of its rank first.
    args
        Further arguments, the same objects on all ranks.
    timeout_s
        Seconds until all must have ended; 5 seconds after a first failure.

    Raises
    ------
    RankError
        A rank raised an exception: the message lists those of all ranks, and the first one is the
        cause. Or ranks did not end: the message names them and shows where they are; the threads
        are left behind.
    """
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def main(rank: int, comm: Any) -> None:
        try:
            results[rank] = function(comm, *args)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            errors[rank] = error

    threads = [
        threading.Thread(
            target=main, args=(rank, comm), name=f"rank {rank} of {size}", daemon=True
        )
        for rank, comm in enumerate(ThreadWorld(size).comms())
    ]
    for thread in threads:
        thread.start()
    alive = _join(threads, errors, timeout_s)
    if errors or alive:
        _raise(size, errors, alive, timeout_s)
    return [results[rank] for rank in range(size)]


def _join(
    threads: Sequence[threading.Thread], errors: dict[int, BaseException], timeout_s: float
) -> list[threading.Thread]:
    """Wait for the threads; return those that did not end in time."""
    end, has_failed = time.monotonic() + timeout_s, False
    for thread in threads:
        while thread.is_alive() and time.monotonic() < end:
            if errors and not has_failed:
                # Ranks that wait for the one that failed would take the whole deadline.
                has_failed, end = True, min(end, time.monotonic() + _FAILURE_GRACE_S)
            # In short waits: another thread may fail meanwhile.
            thread.join(0.02)
    return [thread for thread in threads if thread.is_alive()]


def _raise(
    size: int,
    errors: dict[int, BaseException],
    alive: Sequence[threading.Thread],
    timeout_s: float,
) -> NoReturn:
    __tracebackhide__ = True
    first = next(iter(errors.values()), None)
    if first is not None and not isinstance(first, Exception):
        # As it is: pytest knows these by their class.
        raise first  # a skip, or an interrupt
    lines = [f"rank {rank} of {size} raised {_short(error)}" for rank, error in errors.items()]
    if alive:
        names = ", ".join(thread.name for thread in alive)
        lines.append(f"{names}: did not end within {timeout_s:g} s{_stacks(alive)}")
    raise RankError("\n".join(lines), dict(errors)) from first


def _short(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).rstrip()


def _stacks(threads: Sequence[threading.Thread]) -> str:
    frames = sys._current_frames()
    return "".join(
        f"\n{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
        for thread in threads
        if thread.ident in frames
    )
