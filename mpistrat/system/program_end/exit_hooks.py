"""Run what is registered for the end of a program, in named phases; note how the program ends.

``atexit`` runs what was registered last first, so that an order between parts of this package
would follow from when each was first used. Here it follows from `Phase`. A phase still begins
when ``atexit`` comes to its first registration, as a hook of the user's would that was registered
then, or to that of a later phase: what a program registers for its end after it made its last
strategy may use all of them.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
from collections.abc import Callable
from enum import IntEnum, auto
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from mpistrat.system.program_end import standard_output

__all__ = ["Ending", "Phase", "ending", "register", "watch_errors", "watch_statuses"]


class Phase(IntEnum):
    """The parts of the end of a program, in their order."""

    # The chief ends its workers and servers, for which it needs connections and communicators.
    STRATEGIES = auto()
    # The job's folders of files that are being written: an abort below would leave them behind.
    FILES = auto()
    # The ranks meet for the last time; from then on it is known whether the job has ended well.
    COMMUNICATORS = auto()
    # Moved into the file of the job only if it has, and before an abort, which ends this process.
    TIMELINE = auto()
    # If it has not: MPI_Finalize, after the last hook, could wait for a rank that never comes.
    ABORT = auto()
    # Of processes that never started MPI, or must not finalize it; nothing can run after this.
    PROCESS = auto()


class Ending:
    """How this program ends, as far as is known.

    Attributes
    ----------
    error
        What nobody has caught, of the main thread.
    statuses
        What ``sys.exit`` was called with, as exit statuses, the last one last.
    status_of_job
        What ``sys.exit`` was called with on another rank, which this program cannot do without; 0
        if that is not known.
    has_begun
        Whether the first hook has been called.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.statuses: list[int] = []
        self.status_of_job = 0
        self.has_begun = False

    @property
    def status(self) -> int:
        """The exit status that the program chose by ``sys.exit``; 0 if it chose none."""
        return self.statuses[-1] & 0xFF if self.statuses and self.error is None else 0


ending = Ending()
_NOTES_STATUS = "_mpistrat_notes_status"  # of a replacement of sys.exit


# ------------------------------------------------------------------------------------ the hooks


class _Hook(NamedTuple):
    phase: Phase
    run: Callable[[], object]
    owner: int  # the process that registered it; a forked child inherits the list


_hooks: list[_Hook] = []
_begun_by_atexit: set[Phase] = set()


def register(phase: Phase, run: Callable[[], object]) -> None:
    """Call `run` in a phase of the end of this process, though not in a forked child. **Local.**

    Within a phase, what was registered first is called first. What it raises is shown, and the
    others are called all the same.
    """
    _hooks.append(_Hook(phase, run, os.getpid()))
    if phase not in _begun_by_atexit:
        _begun_by_atexit.add(phase)
        atexit.register(_run_until, phase)


def _run_until(last: Phase) -> None:
    """Call the hooks of all phases up to `last` that have not been called."""
    ending.has_begun = True
    while (hook := _next(last)) is not None:
        # Before it runs: one that fails would be called again and again.
        _hooks.remove(hook)
        try:
            hook.run()
        except BaseException as error:  # noqa: BLE001 - Ctrl-C, too, ends this hook alone
            sys.stderr.write(f"[mpistrat] at the end of the program ({hook.phase.name}):\n")
            standard_output.show_error(type(error), error, error.__traceback__)


def _next(last: Phase) -> _Hook | None:
    """Return the hook to be called next: hooks may register others."""
    mine = [hook for hook in _hooks if hook.phase <= last and hook.owner == os.getpid()]
    return min(mine, key=lambda hook: hook.phase, default=None)


# -------------------------------------------------------------------------- how the program ends

_told_of_errors: list[Callable[[BaseException], object]] = []


class _ErrorHook:
    """A ``sys.excepthook`` that notes the error and calls the hook before it."""

    def __init__(self, previous: Callable[..., object]) -> None:
        is_pythons = previous is sys.__excepthook__
        self._previous = standard_output.show_error if is_pythons else previous

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if ending.error is not error:  # else a hook after this one has done so
            ending.error = error
            for tell in _told_of_errors:
                tell(error)
        self._previous(kind, error, trace)


def watch_errors(tell: Callable[[BaseException], object] | None = None) -> None:
    """Note an uncaught error in `ending`, and call `tell` before it is shown. **Local.**

    A hook that the program has set since the last call is called after this one, and may show the
    error in its own way.
    """
    if tell is not None:
        _told_of_errors.append(tell)
    if not isinstance(sys.excepthook, _ErrorHook):
        sys.excepthook = _ErrorHook(sys.excepthook)


def watch_statuses() -> None:
    """Note in `ending` what ``sys.exit`` and ``exit`` are called with. **Local.**

    At exit Python no longer tells. Idempotent.
    """
    leave = sys.exit
    if getattr(leave, _NOTES_STATUS, False):
        return

    def note(code: Any = None) -> NoReturn:
        ending.statuses.append(code if isinstance(code, int) else int(code is not None))
        leave(code)

    setattr(note, _NOTES_STATUS, True)
    sys.exit = note
    for name in ("exit", "quit"):  # which `python -S` has not
        if hasattr(builtins, name):
            setattr(builtins, name, note)
