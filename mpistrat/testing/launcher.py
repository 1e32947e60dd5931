"""Run a Python program under mpirun with a deadline, and get every rank's output."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpistrat.testing.launching.mpirun import Launcher, LauncherError, find_launcher
from mpistrat.testing.launching.running_job import RankOutput, RunningJob

__all__ = [
    "JobResult",
    "Launcher",
    "LauncherError",
    "RankOutput",
    "RunningJob",
    "find_launcher",
    "run_job",
]


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Attributes
    ----------
    returncode
        mpirun's exit status; negative: minus the signal that ended it.
    timed_out
        True if the job was ended at its deadline; each rank's stderr then ends with its Python
        stacks.
    duration_s
        Seconds from launch to end.
    ranks
        What each rank wrote, by rank.
    launcher_output
        What mpirun itself wrote.
    """

    returncode: int
    timed_out: bool
    duration_s: float
    ranks: tuple[RankOutput, ...]
    launcher_output: str

    @property
    def output(self) -> str:
        """Everything that was written, rank by rank, under headings."""
        parts = [("mpirun", self.launcher_output)]
        parts += [(f"rank {i}", output.text) for i, output in enumerate(self.ranks)]
        return "\n".join(f"--- {name}\n{text.rstrip()}" for name, text in parts if text.strip())

    def check(self) -> JobResult:
        """Return this result if the job ended well, else raise.

        Raises
        ------
        LauncherError
            If mpirun's exit status is not 0 or the deadline passed; carries the whole output.
        """
        if self.returncode or self.timed_out:
            why = "passed its deadline" if self.timed_out else f"exited with {self.returncode}"
            size = len(self.ranks)
            raise LauncherError(
                f"job of {size} ranks {why} after {self.duration_s:.1f} s\n{self.output}"
            )
        return self


def run_job(
    argv: Sequence[str],
    ranks: int,
    timeout_s: float = 45.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    options: Sequence[str] = (),
) -> JobResult:
    """Run a Python program on `ranks` ranks and return how it ended.

    Parameters
    ----------
    argv
        What would stand after ``python``: a script, ``-m module`` or ``-c code``, and arguments.
    ranks
        Number of ranks.
    timeout_s
        Deadline; the ranks then write their stacks, and the job is ended.
    env
        Environment variables to set on top of this process's own.
    cwd
        Working directory; default: this process's.
    options
        Further options of mpirun.

    Returns
    -------
    JobResult
        Whatever the exit status; call its ``check()`` where only 0 will do.

    Raises
    ------
    LauncherError
        If there is no usable mpirun.
    """
    start = time.monotonic()
    job = RunningJob(argv, ranks, env, cwd, options)
    try:
        timed_out = not job.wait(timeout_s)
        if timed_out:
            # The ranks' stderr is read below, after they have written their stacks there.
            job.dump_stacks()
            job.end()
        status = job.poll()
        return JobResult(
            # mpirun itself did not end: as if a signal had to.
            returncode=-9 if status is None else status,
            timed_out=timed_out,
            duration_s=time.monotonic() - start,
            ranks=job.outputs(),
            launcher_output=job.launcher_output(),
        )
    finally:
        job.close()
