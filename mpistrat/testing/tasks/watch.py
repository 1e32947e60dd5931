"""Follow one task of an `MpiJob` to its end, and say what became of it on every rank."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mpistrat.testing.launching import processes
from mpistrat.testing.launching.running_job import RankOutput, RunningJob
from mpistrat.testing.tasks import spool
from mpistrat.testing.tasks.spool import Outcome, Verdict

__all__ = ["TaskResult", "TaskWatch"]

_FAILURE_GRACE_S = 3.0
"""Once a rank has failed, how long the others may go on: they often wait for it in vain."""


@dataclass(frozen=True)
class TaskResult:
    """What became of a task.

    Attributes
    ----------
    outcomes
        By rank; None where a rank did not finish.
    outputs
        What each rank wrote meanwhile, its stacks after a hang included.
    problem
        What went wrong with the job as a whole; empty if nothing.
    """

    outcomes: tuple[Outcome | None, ...]
    outputs: tuple[RankOutput, ...]
    problem: str = ""

    @property
    def verdict(self) -> Verdict:
        """Passed or skipped if every rank says so, else failed."""
        verdicts = {outcome.verdict if outcome else "failed" for outcome in self.outcomes}
        return verdicts.pop() if len(verdicts) == 1 and not self.problem else "failed"

    @property
    def reason(self) -> str:
        """Why the task was skipped, in the words of the first rank."""
        return next((outcome.text for outcome in self.outcomes if outcome), "")

    def report(self) -> str:
        """Return what went wrong, then traceback and output of every rank, in order."""
        size = len(self.outcomes)
        lines = [self.problem] if self.problem else []
        for i, (outcome, output) in enumerate(zip(self.outcomes, self.outputs, strict=True)):
            lines.append(f"===== rank {i} of {size}: {_word(outcome)} =====")
            lines += [outcome.text.rstrip()] if outcome and outcome.text else []
            lines += ["----- its output", output.text.rstrip()] if output.text else []
        return "\n".join(lines)


def _word(outcome: Outcome | None) -> str:
    return outcome.verdict if outcome else "did not finish"


class TaskWatch:
    """Wait for one task, on all ranks, until it is done or cannot be.

    Parameters
    ----------
    job
        The job that runs it.
    folder
        The job's spool.
    number
        The task's number in the spool.
    timeout_s
        Deadline.
    """

    def __init__(self, job: RunningJob, folder: Path, number: int, timeout_s: float) -> None:
        self._job, self._folder, self._number = job, folder, number
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._failed_until = float("inf")
        self._done: dict[int, Outcome] = {}

    def wait(self) -> str:
        """Return once all ranks are done, or it is clear that they never will be.

        Returns
        -------
        str
            What went wrong with the job as a whole; empty if nothing.
        """
        for pause in spool.pauses():
            if not (missing := self._missing()):
                break
            # Not in quick looks: it costs more than a short test.
            if pause >= spool.POLL_S and (problem := self._dead(missing) or self._late(missing)):
                return problem
            time.sleep(pause)
        # The text of a barrier that failed: with a passed test the job is of no use all the same.
        return "\n".join(outcome.text for outcome in self._done.values() if outcome.text)

    def _missing(self) -> list[int]:
        """Return the ranks that have not passed the barrier after the task."""
        missing = [i for i in range(self._job.ranks) if i not in self._done]
        for i in missing:
            outcome = spool.get(spool.done_file(self._folder, self._number, i))
            if outcome is not None:
                self._done[i] = outcome
        return [i for i in missing if i not in self._done]

    def _dead(self, missing: list[int]) -> str:
        """Say whose process, of those that have something left to do, is gone."""
        pids = self._job.pids()
        dead = [i for i in missing if i in pids and not processes.is_alive(pids[i])]
        if dead:
            return f"the process of rank {_listed(dead)} of {self._job.ranks} ended in the test"
        # Also without a rank's process id: mpirun may have ended before a rank wrote its own.
        status = self._job.poll()
        return "" if status is None else f"mpirun ended with status {status} in the test"

    def _late(self, missing: list[int]) -> str:
        """Say which deadline has passed, if one has."""
        now = time.monotonic()
        late = self._where(missing)
        if now > self._deadline:
            return f"deadline of {self._timeout_s:g} s passed; {late}"
        if now > self._failed_until:
            return f"{_FAILURE_GRACE_S:g} s passed since a rank failed; {late}"
        # Looked for until the first failure only: each look reads the files of all ranks.
        if self._failed_until == float("inf") and self._has_failed(missing):
            self._failed_until = now + _FAILURE_GRACE_S
        return ""

    def _where(self, missing: list[int]) -> str:
        """Say who has not come through the function, or else through the barrier after it."""
        inside = [i for i in missing if self._body(i) is None]
        place = "the test" if inside else "the barrier after it"
        return f"still in {place}: rank {_listed(inside or missing)} of {self._job.ranks}"

    def _body(self, index: int) -> Outcome | None:
        body: Outcome | None = spool.get(spool.body_file(self._folder, self._number, index))
        return body

    def _has_failed(self, missing: list[int]) -> bool:
        bodies = map(self._body, missing)
        return any(body is not None and body.verdict == "failed" for body in bodies)


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
