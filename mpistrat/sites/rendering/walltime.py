"""Parse the time of a job, spell it for a scheduler, and choose how early its end is announced."""

from __future__ import annotations

import re

from mpistrat.errors import UsageError

__all__ = ["clock", "first_told_s", "lead_s", "seconds"]

_DAYS = re.compile(r"(\d{1,4})-(\d{1,2})(?::([0-5]?\d))?(?::([0-5]?\d))?")
_HOURS = re.compile(r"(\d{1,4}):([0-5]?\d):([0-5]?\d)")
_MINUTES = re.compile(r"(\d{1,6})(?::([0-5]?\d))?")
_EARLY_S = 60  # Slurm may send a job's signal so much earlier


def seconds(time: str) -> int:
    """Return a time in seconds, by Slurm's rules: ``30``, ``30:00``, ``1:30:00``, ``2-12:00``.

    Raises
    ------
    UsageError
        It is none of these, or zero.
    """
    duration_s = _parsed(time)
    if not duration_s:
        raise UsageError(
            f"--time {time!r}: expected MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS or"
            " DAYS-HOURS:MINUTES:SECONDS, and more than zero"
        )
    return duration_s


def clock(duration_s: int) -> str:
    """Return a time as both schedulers read it, in hours: ``36:00:00``."""
    minutes, second = divmod(duration_s, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"


def lead_s(wanted_s: int, duration_s: int | None) -> int | None:
    """Return how long before a job's end it is told; None for jobs too short for that.

    Slurm sends the signal up to a minute early: a job of five minutes that is to be told 300 s
    before its end would be told at its start, save, and ask to be started again, for ever.
    """
    if duration_s is None or duration_s >= 2 * (wanted_s + _EARLY_S):
        return wanted_s
    shorter_s = duration_s // 4
    return shorter_s if shorter_s >= _EARLY_S else None


def first_told_s(lead_s: int, duration_s: int) -> int:
    """Return the run time, 0 or more, after which Slurm may send a job's signal."""
    return max(0, duration_s - lead_s - _EARLY_S)


def _parsed(time: str) -> int:
    if found := _DAYS.fullmatch(time):
        days, hours, minutes, second = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + second
    if found := _HOURS.fullmatch(time):
        hours, minutes, second = map(int, found.groups())
        return (hours * 60 + minutes) * 60 + second
    if found := _MINUTES.fullmatch(time):
        minutes, second = (int(part or 0) for part in found.groups())
        return minutes * 60 + second
    return 0
