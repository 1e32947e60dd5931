"""Run a command with a time limit, and keep how it ended, whatever that is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_LAST_LINES = 40
_END_S = 10.0  # for a command to end what it started, once it is asked to
_LEAST_S = 5.0


@dataclass(frozen=True)
class Step:
    """One command of the check.

    Attributes
    ----------
    name
        In the report.
    command
        The program and its arguments.
    timeout_s
        Its own time limit; less where less is left of the whole.
    environment
        Variables on top of those of all steps.
    why_not
        Why it cannot run here; it is then skipped with this line.
    figures
        Returns what the step has measured or counted, for the report.
    says_it_cannot
        Text in the output of a failed command that says that it cannot work here: it is skipped.
    """

    name: str
    command: list[str]
    timeout_s: float
    environment: dict[str, str] = field(default_factory=dict)
    why_not: str | None = None
    figures: Callable[[], Any] | None = None
    says_it_cannot: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a step ended.

    Attributes
    ----------
    name
        Of the step.
    outcome
        ``"passed"``, ``"failed"``, ``"timed out"`` or ``"skipped"``.
    seconds
        How long it took.
    reason
        Why it was skipped or failed.
    last_lines
        The end of its output, where it did not pass.
    figures
        What it has found.
    """

    name: str
    outcome: str
    seconds: float = 0.0
    reason: str | None = None
    last_lines: list[str] = field(default_factory=list)
    figures: Any = None

    @property
    def is_bad(self) -> bool:
        """Whether it ran and did not pass."""
        return self.outcome in ("failed", "timed out")

    def record(self) -> dict[str, Any]:
        """Return it for the JSON file."""
        return asdict(self)


def log_name(step: str) -> str:
    """Return a step's name as that of its files, without the ending."""
    return re.sub(r"[^a-z0-9]+", "-", step)


def run(step: Step, environment: dict[str, str], log: Path, left_s: float) -> Outcome:
    """Run a step in its own process group; its output goes to `log`.

    Parameters
    ----------
    step
        What to run.
    environment
        Variables of all steps.
    log
        A file, for stdout and stderr.
    left_s
        Seconds that are left for all.
    """
    if step.why_not:
        return Outcome(step.name, "skipped", reason=step.why_not)
    limit_s = min(step.timeout_s, left_s)
    if limit_s < _LEAST_S:
        return Outcome(step.name, "skipped", reason="no time is left")
    start = time.monotonic()
    try:
        status = _status(step, {**environment, **step.environment}, log, limit_s)
    except OSError as error:
        return Outcome(step.name, "failed", reason=str(error))
    seconds = round(time.monotonic() - start, 1)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    figures, fault = _figures(step)
    if status is None:
        reason, outcome = f"no end after {limit_s:.0f} s", "timed out"
    elif status and step.says_it_cannot and step.says_it_cannot in "\n".join(lines):
        return Outcome(step.name, "skipped", seconds, f"it says: {step.says_it_cannot}")
    elif status or fault:
        said = f"exit status {status}" if status else None
        reason, outcome = "; ".join(filter(None, [said, fault])), "failed"
    else:
        return Outcome(step.name, "passed", seconds, figures=figures)
    return Outcome(step.name, outcome, seconds, reason, lines[-_LAST_LINES:], figures)


def _status(step: Step, environment: dict[str, str], log: Path, limit_s: float) -> int | None:
    """Return the exit status, or None if the time limit ended the command."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            step.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            # All that it starts can be ended with it; the jobs of tests end when it does.
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a command's process group: first asked, then at once."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            continue


def _figures(step: Step) -> tuple[Any, str | None]:
    """Return what a step has found, or why that cannot be read."""
    if step.figures is None:
        return None, None
    try:
        return step.figures(), None
    except (OSError, ValueError) as error:
        return None, f"its figures cannot be read: {error}"
