"""Messages between the chief and a worker: calls with their functions, and their results.

The end of the job, and that it has failed, are messages of `mpistrat.ps.messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple

from mpistrat.ps.messages import End, Fail, Message
from mpistrat.ps.transport.encoding import Encoded, decoder
from mpistrat.system.sent_errors import SentError

__all__ = [
    "CallResult",
    "CallToRun",
    "Results",
    "RunCalls",
    "UseRounds",
    "decoded",
    "decoded_results",
]


class CallToRun(NamedTuple):
    """A scheduled function as a worker gets it.

    Attributes
    ----------
    number
        By which its result comes back.
    function, shipped
        The function's number; and itself, pickled, if the worker does not have it.
    arguments
        Pickled.
    place
        In a synchronous round, or -1.
    needed
        The results of other calls that are among the arguments, pickled.
    """

    number: int
    function: int
    shipped: Any
    arguments: Any
    place: int
    needed: list[Any]


class CallResult(NamedTuple):
    """What has come of a call: an error, or what it returned, pickled."""

    number: int
    error: SentError | None
    value: Any


@dataclass
class UseRounds(Message):
    """Functions run in synchronous rounds from now on; the first message, if they do."""


@dataclass
class RunCalls(Message):
    """Drop what nobody will use again, then run some calls in their order.

    Attributes
    ----------
    dropped_functions, dropped_resources
        Their numbers.
    rows
        The calls as plain tuples, which are faster to pickle.
    """

    dropped_functions: list[int]
    dropped_resources: list[int]
    rows: list[Encoded]

    @property
    def calls(self) -> Iterator[CallToRun]:
        """The calls."""
        return starmap(CallToRun, self.rows)


@dataclass
class Results(Message):
    """Results of calls, and how long the functions of their message took on average.

    Attributes
    ----------
    rows
        The results as plain tuples, which are faster to pickle.
    """

    rows: list[Encoded]
    average_s: float

    @classmethod
    def of(cls, results: Iterable[CallResult], average_s: float) -> Results:
        """Return the message with some results."""
        return cls([*map(tuple, results)], average_s)

    @property
    def results(self) -> Iterator[CallResult]:
        """The results."""
        return starmap(CallResult, self.rows)


decoded = decoder((End, Fail, UseRounds, RunCalls))
"""Return what the chief has sent to a worker or an evaluator."""

decoded_results = decoder((Results,))
"""Return what a worker has sent to the chief."""
