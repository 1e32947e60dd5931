"""Raise on all ranks what fails on one of them.

A rank that leaves with an error while its peers wait for it in a collective leaves them to their
deadline. There are three ways to tell them, of different costs:

- `Communicator.checking`: a failing rank tells the peers in place of the collective that follows,
  where they get `MismatchError`. It costs nothing while nothing fails.
- `all_or_none`: every rank learns what came of the call on each before it goes on, and raises the
  error of the first that failed. It costs one gathering.
- `first_or_none`: one rank makes the call, the others wait for its result or failure.

`outcomes` is for callers that word the error of all ranks themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mpistrat import config
from mpistrat.errors import ClusterError, MpistratError
from mpistrat.system.sent_errors import SentError

if TYPE_CHECKING:
    from mpistrat.collectives.communicator import Communicator

__all__ = ["Outcomes", "all_or_none", "attempt", "first_or_none", "outcomes"]

T = TypeVar("T")


@dataclass(frozen=True)
class Outcomes(Generic[T]):
    """What came of a call that each rank has made.

    Attributes
    ----------
    results
        By rank; None where the call failed.
    failures
        The errors by rank, of those ranks that have one.
    mine
        The error of this rank; None if it has none.
    """

    results: list[T]
    failures: dict[int, SentError]
    mine: Exception | None


def attempt(
    communicator: Communicator | None, call: Callable[[], T]
) -> tuple[T | None, Exception | None]:
    """Call a function; return its result, or the error that is to be raised later. **Local.**

    What ends the program, such as KeyboardInterrupt, is raised at once: the peers hear of it in
    the collective in which they wait.
    """
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - the caller raises it, once the peers know
        return None, error
    except BaseException as error:
        if communicator is not None:
            communicator.fail(error)
        raise


def outcomes(
    communicator: Communicator | None,
    call: Callable[[], T],
    timeout: float | None = None,
    known: tuple[type[Exception], ...] = (),
    label: str | None = None,
) -> Outcomes[T]:
    """Make a call on each rank; return what came of it on each, and raise no error of it.

    Parameters
    ----------
    communicator
        Between the ranks; None if this process is alone.
    call
        What this rank does. Its result has to be plain data.
    timeout
        In seconds, of the gathering; by default ``MPISTRAT_TIMEOUT``.
    known
        Errors of the call that the peers have heard of by themselves. They are raised at once.
    label
        What the gathering is made for, compared between the ranks; default: the communicator's.

    Notes
    -----
    **Collective**, one gathering of the pickled results.
    """
    result, mine = attempt(communicator, call)
    if isinstance(mine, known):
        raise mine
    sent = None if mine is None else SentError.described(mine)
    found: list[Any] = [(result, sent)]
    if communicator is not None:
        with communicator.labelled(label or communicator.label):
            found = communicator.allgather_object((result, sent), timeout=timeout)
    failures = {rank: error for rank, (_, error) in enumerate(found) if error is not None}
    return Outcomes([one for one, _ in found], failures, mine)


def all_or_none(
    communicator: Communicator, call: Callable[[], T], what: str, may_last_s: float = 0.0
) -> list[T]:
    """Return what `call` returns on each rank, by rank; or raise on all.

    Parameters
    ----------
    communicator
        Between the ranks; closed if a call fails.
    call
        What this rank does. Its result has to be plain data.
    what
        It, in words.
    may_last_s
        How long a rank may take for it. The others wait for MPISTRAT_TIMEOUT seconds more.

    Raises
    ------
    Exception
        On ranks whose call fails: its error. On the others: that of the first of those, as the
        same class of `mpistrat.errors`; what is none of these is a ClusterError there.

    Notes
    -----
    **Collective.**
    """
    found = outcomes(communicator, call, config.timeout_s() + may_last_s)
    if not found.failures:
        return found.results
    communicator.close()  # all ranks raise it
    if found.mine is not None:
        raise found.mine
    rank, error = next(iter(found.failures.items()))
    name = communicator.gate.names.place(rank)
    cause = MpistratError(f"rank {name} raised this in {what}")
    raise error.as_ours(ClusterError) from cause


def first_or_none(communicator: Communicator, call: Callable[[], T], root: int = 0) -> T:
    """Make a call on one rank; return its result on all, or raise on all.

    Raises
    ------
    Exception
        On `root`: the error of the call.
    MismatchError
        On the others: the call failed. It has the error's text.

    Notes
    -----
    **Collective.** The others wait for MPISTRAT_TIMEOUT seconds at most.
    """
    result: Any = None
    with communicator.checking():
        if communicator.rank == root:
            result = call()
    found: T = communicator.bcast_object(result, root)
    return found
