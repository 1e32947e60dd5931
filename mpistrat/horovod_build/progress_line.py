"""Show how far a build is: one line that is redrawn, or a line a step where no terminal is."""

from __future__ import annotations

import re
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["ProgressLine"]

_PERCENT = re.compile(r"^\s*\[ *(\d+)%\]")
_QUIET_S = 30.0  # between lines, where no terminal is


class ProgressLine:
    """The line of a build; a context manager. It goes to standard error."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_live = console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[percent]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self._is_live,
        )
        self._task = self._progress.add_task("", total=None, percent="")
        self._text, self._percent, self._said = "", 0, time.monotonic()

    def __enter__(self) -> ProgressLine:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        """Say what is done next."""
        self._text, self._percent = text, 0
        self._progress.update(self._task, description=text, completed=0, total=None, percent="")
        self._print(text)

    def follow(self, line: str) -> None:
        """Read from a line of CMake's how far the compilation is."""
        found = _PERCENT.match(line)
        if found is None:
            return
        self._percent = int(found[1])
        self._progress.update(
            self._task, completed=self._percent, total=100, percent=f"{self._percent} %"
        )
        if time.monotonic() - self._said > _QUIET_S:
            self._print(f"{self._text}: {self._percent} %")

    def _print(self, text: str) -> None:
        self._said = time.monotonic()
        if not self._is_live:
            print(text, file=sys.stderr, flush=True)
