"""Decide when to save: every so many steps or seconds, and once more before the end in time."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Protocol

from mpistrat.errors import ArgumentTypeError, CheckpointError, UsageError
from mpistrat.preemption.save_time import SaveTime

__all__ = ["Saver", "Saves"]


class Saver(Protocol):
    """What a handler needs of a checkpoint manager; TensorFlow's has it, too."""

    @property
    def latest_checkpoint(self) -> str | None:
        """Path of the latest checkpoint."""

    def save(self, checkpoint_number: Any = None, check_interval: bool = True) -> str | None:
        """Save on all ranks, and return the path."""


class Saves:
    """The saves of one handler.

    Parameters
    ----------
    manager
        Saves; None where there is nothing to save.
    every_steps, every_s
        Of periodic saves; None for never.
    is_first
        Whether this rank decides for all whether there is time.

    Attributes
    ----------
    unsaved_steps
        Steps since the last save.

    Raises
    ------
    UsageError
        `manager` is no such thing, or a number is not above 0.
    """

    def __init__(
        self,
        manager: Saver | None,
        every_steps: int | None,
        every_s: float | None,
        is_first: bool,
    ) -> None:
        _check_manager(manager)
        _check_above_0("save_every_steps", every_steps)
        _check_above_0("save_every_s", every_s)
        self._manager, self._is_first = manager, is_first
        self._every_steps, self._every_s = every_steps or math.inf, every_s or math.inf
        folder: Any = getattr(manager, "directory", None)
        is_kept = folder is not None and is_first
        self._time = SaveTime(Path(folder).absolute() if is_kept else None)
        self._saved_at, self.unsaved_steps = time.monotonic(), 0

    @property
    def latest(self) -> str | None:
        """Path of the checkpoint that counts, or None."""
        return None if self._manager is None else self._manager.latest_checkpoint

    def is_due(self) -> bool:
        """Tell whether it is time for a periodic save. **Local.**"""
        is_late = time.monotonic() - self._saved_at >= self._every_s
        return self.unsaved_steps > 0 and (is_late or self.unsaved_steps >= self._every_steps)

    def has_time(self, deadline: float) -> bool:
        """Tell whether a save can end before `deadline`, in seconds since 1970. **Local.**"""
        expected_s = self._time.expected_s
        return expected_s is None or time.time() + expected_s <= deadline

    def save(self) -> str | None:
        """Save, and measure how long it takes. **Collective**, blocks."""
        start, path = time.monotonic(), None
        if self._manager is not None:
            path = self._manager.save(check_interval=False)
        self._saved_at, self.unsaved_steps = time.monotonic(), 0
        if self._is_first:
            self._time.add(self._saved_at - start)
        return path

    def save_last(self, is_unsaved: bool, has_time: bool, deadline: float) -> str:
        """Save if that is of use, and say in words which checkpoint counts. **Collective.**

        Parameters
        ----------
        is_unsaved
            Whether any rank has made steps since the last save.
        has_time
            What rank 0 has found by `has_time`.
        deadline
            By which it has.
        """
        if not is_unsaved:
            return f"no step since the last checkpoint; the one that counts is {self.latest}"
        if not has_time:
            left_s = max(0.0, deadline - time.time())
            return (
                f"a save takes about {self._time.expected_s or 0:.1f} s, and {left_s:.1f} s are"
                f" left: not begun; the checkpoint that counts is {self.latest}"
            )
        try:
            return f"saved {self.save()}"
        except CheckpointError as error:  # on all ranks, of which none must stay behind
            return f"{error}; the checkpoint that counts is {self.latest}"


def _check_manager(manager: Any) -> None:
    has_all = callable(getattr(manager, "save", None)) and hasattr(manager, "latest_checkpoint")
    if manager is not None and not has_all:
        raise ArgumentTypeError(
            f"PreemptionHandler of a {type(manager).__name__}; expected a"
            " mpistrat.train.CheckpointManager, or None on a rank that only serves"
        )


def _check_above_0(name: str, value: float | None) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 < value < math.inf):
        raise UsageError(f"{name}={value!r}: expected a number above 0, or None for never")
