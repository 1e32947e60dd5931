"""Read what Slurm says of a job: its state, where it runs, its output, how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mpistrat.errors import ClusterError
from mpistrat.sites.submitting.slurm_commands import ask

__all__ = ["Record", "records_of"]

_ENDS = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "SPECIAL_EXIT", "TIMEOUT"),
}
_GONE = "Invalid job id"


@dataclass(frozen=True)
class Record:
    """The state of a job, or of one job of an array.

    Attributes
    ----------
    state, reason
        By Slurm's names; the reason is why it waits or how it failed.
    exit_code
        Of the script, and the signal that ended it.
    nodes
        Slurm's list of them; "" before it runs.
    run_s, limit_s
        Time that it has run, and that it may run; None without limit.
    output
        File that has what it prints.
    restarts
        How often it was started again.
    index
        Number of a job of an array; "" for other jobs.
    """

    state: str
    reason: str = ""
    exit_code: tuple[int, int] = (0, 0)
    nodes: str = ""
    run_s: int = 0
    limit_s: int | None = None
    output: Path | None = None
    restarts: int = 0
    index: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, for good."""
        return self.state in _ENDS


def records_of(job: str) -> list[Record]:
    """Return the records of a job, one for each job of an array. **Local.**

    Slurm forgets jobs some minutes after their end; its accounting, where there is one, does not.

    Raises
    ------
    ClusterError
        Slurm cannot say.
    """
    done = ask(["scontrol", "show", "job", job])
    if done.returncode == 0:
        blocks = [block for block in re.split(r"\n\s*\n", done.stdout) if "JobState=" in block]
        return [_record(block) for block in blocks]
    if _GONE not in done.stderr + done.stdout:
        raise ClusterError(f"scontrol show job {job}: {done.stderr.strip() or done.returncode}")
    return _accounted(job)


def _record(block: str) -> Record:
    code, signal = _found(r"ExitCode=(\d+):(\d+)", block) or ("0", "0")
    state, reason = _found(r"^\s*JobState=(\w+) Reason=(\S+)", block) or ("UNKNOWN", "")
    (nodes,) = _found(r"^\s*NodeList=(\S*)", block) or ("",)
    (output,) = _found(r"^\s*StdOut=(.*)$", block) or ("",)
    (run,) = _found(r"RunTime=(\S+)", block) or ("",)
    (limit,) = _found(r"TimeLimit=(\S+)", block) or ("",)
    (restarts,) = _found(r"Restarts=(\d+)", block) or ("0",)
    (index,) = _found(r"ArrayTaskId=(\S+)", block) or ("",)
    return Record(
        state,
        "" if reason == "None" else reason,
        (int(code), int(signal)),
        "" if nodes == "(null)" else nodes,
        _seconds(run) or 0,
        _seconds(limit),
        Path(output) if output else None,
        int(restarts),
        index,
    )


def _found(pattern: str, block: str) -> tuple[str, ...] | None:
    # The first line has the job's name, which may look like anything.
    _, _, rest = block.partition("\n")
    where = block if pattern.startswith("ArrayTaskId") else rest
    found = re.search(pattern, where, re.MULTILINE)
    return tuple(found.groups()) if found else None


def _seconds(time: str) -> int | None:
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", time)
    if not found:
        return None
    days, hours, minutes, second = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + second


def _accounted(job: str) -> list[Record]:
    command = ["sacct", "--allocations", "--noheader", "--parsable2", "--jobs", job]
    try:
        done = ask([*command, "--format", "State,ExitCode,JobID"])
    except (ClusterError, ValueError):
        done = None
    rows = [line.split("|") for line in done.stdout.splitlines()] if done else []
    found = [row for row in rows if len(row) == 3 and re.fullmatch(r"\d+:\d+", row[1])]
    if not found:
        raise ClusterError(
            f"Slurm has forgotten job {job} and has no accounting; the output says how it went"
        )
    return [_of_accounting(*row) for row in found]


def _of_accounting(state: str, exit_code: str, job: str) -> Record:
    code, _, signal = exit_code.partition(":")
    name = state.split(maxsplit=1)[0]  # "CANCELLED by 0"
    return Record(name, exit_code=(int(code), int(signal)), index=job.partition("_")[2])
