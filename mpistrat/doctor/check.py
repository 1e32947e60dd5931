"""A check: its measurement on a rank, and its judgement of what all ranks have measured."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.doctor.not_here import NotHere

__all__ = [
    "Check",
    "NotHere",
    "Problem",
    "Result",
    "Status",
    "Verdict",
    "Where",
    "failure",
    "warning",
]

F = TypeVar("F")


class Status(enum.Enum):
    """The outcome of a check, in the spelling of the report."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    NOT_HERE = "not here"


class Where(enum.Enum):
    """The ranks that measure."""

    EVERY_RANK = "every rank"
    FIRST_OF_NODE = "the first rank of each node"
    FIRST_RANK = "rank 0"


@dataclass(frozen=True)
class Problem:
    """A fault that a check has found.

    Attributes
    ----------
    status
        `Status.WARNING` or `Status.FAILURE`.
    got, expected
        The value found, with its ranks and nodes, and the value that is right.
    fix
        What the user does about it.
    command
        A command line to type, if there is one.
    """

    status: Status
    got: str
    expected: str
    fix: str
    command: str = ""


def failure(got: str, expected: str, fix: str, command: str = "") -> Problem:
    """Return a fault with which training fails, hangs or is several times slower."""
    return Problem(Status.FAILURE, got, expected, fix, command)


def warning(got: str, expected: str, fix: str, command: str = "") -> Problem:
    """Return a fault that costs time now, or a job later."""
    return Problem(Status.WARNING, got, expected, fix, command)


@dataclass(frozen=True)
class Verdict:
    """The value that a check has found, and its faults; none where all is well.

    Attributes
    ----------
    value
        A few words for a line of the table.
    expected
        The value that is right, where one can be named.
    problems
        The faults, the worst first.
    corrections
        Values of the site's file that the machine contradicts, by their keys in the file.
    """

    value: str
    expected: str = ""
    problems: tuple[Problem, ...] = ()
    corrections: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Check(Generic[F]):
    """One of the checks.

    Attributes
    ----------
    name
        ``area.name``, in JSON and JUnit; the area is the name of the check's folder.
    title
        Its name in the table.
    source
        Where the fault was reported, or the document that states the rule.
    measure
        Gather the facts of one rank, without MPI; an exception is a failure of the check, except
        `NotHere`. None where `exchange` does it.
    judge
        Turn the facts of all ranks, by rank, into a verdict. A pure function.
    exchange
        Gather facts by messages between the ranks, which all of them take part in.
    where
        The ranks that call `measure`.
    """

    name: str
    title: str
    source: str
    judge: Callable[[Mapping[int, F], Job], Verdict]
    measure: Callable[[Here], F] | None = None
    exchange: Callable[[Here, TimedComm], F] | None = None
    where: Where = Where.EVERY_RANK

    @property
    def area(self) -> str:
        """The folder of the check."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Result:
    """The outcome of a check, as it is reported.

    Attributes
    ----------
    name, title, source
        Those of the check.
    status
        The worst of its problems', or ok, or not here.
    value, expected, problems
        Those of its verdict; the value of a check that is not here is the reason.
    duration_s
        Time of its slowest rank.
    """

    name: str
    title: str
    source: str
    status: Status
    value: str
    expected: str = ""
    problems: tuple[Problem, ...] = ()
    duration_s: float = 0.0

    @property
    def area(self) -> str:
        """The folder of the check."""
        return self.name.partition(".")[0]

    @property
    def fix(self) -> str:
        """What to do about all problems."""
        return "; ".join(problem.fix for problem in self.problems)
