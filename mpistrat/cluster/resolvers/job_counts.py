"""Check the numbers of tasks by job that a program asks a resolver for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = ["JOBS", "checked_counts", "whole_number"]

JOBS = ("chief", "worker", "ps", "evaluator")
"""The jobs of a cluster, in the order in which they get the ranks."""


def checked_counts(jobs: Mapping[str, int]) -> dict[str, int]:
    """Return numbers of tasks by job, those of 0 left out.

    Raises
    ------
    ArgumentTypeError
        It is no mapping, or a number is none.
    UsageError
        A job is not known, or the roles make no cluster.
    """
    if not isinstance(jobs, Mapping):
        raise ArgumentTypeError(
            f"jobs={jobs!r} is a {type(jobs).__name__}; expected a dict such as"
            " {'chief': 1, 'worker': 5, 'ps': 2}"
        )
    unknown = [job for job in jobs if job not in JOBS]
    if unknown:
        raise UsageError(f"jobs names {unknown[0]!r}; expected only {', '.join(JOBS)}")
    counts = {job: whole_number(f"jobs[{job!r}]", count) for job, count in jobs.items()}
    found = {job: counts[job] for job in JOBS if counts.get(job)}
    wrong = _wrong(found)
    if wrong is not None:
        raise UsageError(f"jobs={dict(jobs)!r}: {wrong}")
    return found


def _wrong(counts: Mapping[str, int]) -> str | None:
    """Return why the roles make no cluster, or None."""
    if counts.get("chief", 0) > 1:
        return "expected one chief at most"
    if not counts.get("worker") and not counts.get("chief"):
        return "expected a worker or more"
    if "ps" in counts and not ("chief" in counts and "worker" in counts):
        return "expected a chief and a worker or more beside the ps: add 'chief': 1"
    if "evaluator" in counts and "ps" not in counts:
        return "expected ps beside the evaluator; without them evaluate on rank 0"
    return None


@overload
def whole_number(name: str, value: Any, *, or_none: Literal[False] = False) -> int: ...
@overload
def whole_number(name: str, value: Any, *, or_none: Literal[True]) -> int | None: ...
def whole_number(name: str, value: Any, *, or_none: bool = False) -> int | None:
    """Return `value` if it is a whole number, 0 or more.

    Raises
    ------
    ArgumentTypeError, UsageError
        It is none, or less than 0; the error says `name`.
    """
    if value is None and or_none:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{name}={value!r}: expected a whole number")
    if value < 0:
        raise UsageError(f"{name}={value}: expected 0 or more")
    return value
