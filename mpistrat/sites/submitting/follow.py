"""Follow a job until it ends: print its output, show its state, return how it ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from mpistrat.errors import ClusterError
from mpistrat.sites.submitting.job_state import Record, records_of
from mpistrat.sites.submitting.output import Tail
from mpistrat.sites.submitting.progress_line import ProgressLine

__all__ = ["end_of", "exit_code", "follow", "with_forgotten"]

_NAP_S = 0.25
_FIRST_S, _LAST_S, _GROWTH = 0.5, 10.0, 1.3  # between two questions to Slurm
_SILENCE_S = 600.0  # how long Slurm may not answer


def follow(job: str) -> list[Record]:
    """Return the records of a job once it has ended. **Local.**

    It waits as long as the job waits and runs; Ctrl-C ends this process only, not the job.

    Raises
    ------
    ClusterError
        Slurm has not answered for ten minutes, or has forgotten the job.
    """
    with ProgressLine(job) as line:
        records = _asked(job)
        tail = _tail(records)
        pause_s = _FIRST_S
        while not all(record.has_ended for record in records):
            line.show(records)
            _print_for(pause_s, tail, line)
            newer = with_forgotten(_asked(job), records)
            pause_s = _next_pause(pause_s, records, newer)
            records, tail = newer, tail or _tail(newer)
        if tail:
            _print_end(tail, line)
    return records


def with_forgotten(newer: Sequence[Record], older: Sequence[Record]) -> list[Record]:
    """Return the newer records, and those of ended jobs of an array that Slurm shows no more.

    Slurm forgets a job some minutes after its end, while others of its array still run.
    """
    shown = {record.index for record in newer}
    gone = [record for record in older if record.has_ended and record.index not in shown]
    return [*newer, *gone]


def exit_code(records: Sequence[Record]) -> int:
    """Return the exit code of a job: its script's, or 1; of an array the highest."""
    return max(_exit_code(record) for record in records)


def end_of(job: str, records: Sequence[Record]) -> str:
    """Return how a job ended, in one line for each that failed, else in one."""
    failed = [record for record in records if record.state != "COMPLETED"]
    lines = [
        f"job {job}{f'_{record.index}' if len(records) > 1 else ''}: {record.state}"
        f"{f' ({record.reason})' if record.reason else ''}, exit code {_exit_code(record)};"
        f" {_where(record.output)}"
        for record in failed
    ]
    if not failed:
        outputs = [record.output for record in records if record.output]
        there = [output for output in outputs if output.exists()]
        lines = [f"job {job}: COMPLETED; {_where(*(there or outputs))}"]
    return "\n".join(lines)


def _where(*outputs: Path | None) -> str:
    """Return where the outputs of jobs are, of which all or none are there."""
    known = [output for output in outputs if output]
    if not known:
        return "Slurm does not say where its output is"
    is_there = known[0].exists()
    return f"output in {_shown(known)}" if is_there else f"there is no output ({_shown(known)})"


def _shown(outputs: Sequence[Path]) -> str:
    return str(outputs[0]) if len(outputs) == 1 else f"{outputs[0].parent} ({len(outputs)} files)"


def _exit_code(record: Record) -> int:
    code, signal = record.exit_code
    if record.state == "COMPLETED":
        return 0
    return code or (128 + signal if signal else 1)


def _asked(job: str) -> list[Record]:
    """Return a job's records; ask again where Slurm does not answer at once."""
    end = time.monotonic() + _SILENCE_S
    while True:
        try:
            if records := records_of(job):
                return records
        except ClusterError as error:
            if time.monotonic() > end or "forgotten" in str(error):
                raise
        time.sleep(_LAST_S)


def _tail(records: Sequence[Record]) -> Tail | None:
    """Return the output of a job; an array has too many to show."""
    output = records[0].output if len(records) == 1 and not records[0].index else None
    return Tail(output) if output else None


def _print_for(duration_s: float, tail: Tail | None, line: ProgressLine) -> None:
    """Print what the job adds to its output during a time."""
    end = time.monotonic() + duration_s
    while time.monotonic() < end:
        time.sleep(_NAP_S)
        for text in tail.lines() if tail else ():
            line.out(text)


def _print_end(tail: Tail, line: ProgressLine) -> None:
    """Print the end of the output, once shared file systems have had time to show it."""
    _print_for(_FIRST_S, tail, line)
    for text in tail.rest():
        line.out(text)


def _next_pause(pause_s: float, records: Sequence[Record], newer: Sequence[Record]) -> float:
    """Return when to ask next: soon after a change, then ever more rarely."""
    states = [record.state for record in records]
    if states != [record.state for record in newer]:
        return _FIRST_S
    return min(pause_s * _GROWTH, _LAST_S)
