"""The ranks that save or restore together: an error on one is an error on all."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn, TypeVar

from mpistrat import config
from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.raise_on_all import Outcomes, outcomes
from mpistrat.errors import CheckpointError, CommunicationError, MpistratError, UsageError
from mpistrat.system.sent_errors import SentError

__all__ = ["SavingRanks"]

T = TypeVar("T")


class SavingRanks:
    """Ranks that take each step together: an error on one rank raises on all.

    Parameters
    ----------
    communicator
        Over the ranks; None if this process is alone.

    Attributes
    ----------
    communicator, rank, size
        Of these ranks.
    """

    def __init__(self, communicator: Communicator | None) -> None:
        self.communicator = communicator
        self.rank = 0 if communicator is None else communicator.rank
        self.size = 1 if communicator is None else communicator.size

    def take(self, what: str, step: Callable[[], T], may_last_s: float = 0.0) -> list[T]:
        """Take a step on each rank, and return all ranks' results by rank. **Collective.**

        Parameters
        ----------
        what
            Names the step in errors.
        step
            Returns plain data, which is sent to all ranks.
        may_last_s
            How long it may take on one rank only. The others wait so much longer than
            ``MPISTRAT_TIMEOUT`` seconds.

        Raises
        ------
        CheckpointError
            The step failed here for a reason of the system's, or on other ranks. It names them.
        Exception
            Any other error of the step on this rank.
        """
        limit_s = config.timeout_s() + may_last_s
        # Not the path, of which an error tells more. Other calls of the ranks are no part of this.
        label = f"{what.split(maxsplit=1)[0]} a checkpoint, which is a call of all ranks"
        found = outcomes(self.communicator, step, limit_s, (CommunicationError,), label)
        if found.failures:
            self._raise(what, found)
        return found.results

    def take_first(self, what: str, step: Callable[[], T]) -> T:
        """Take a step on rank 0 only, and return its result on every rank. **Collective.**"""
        return self.take(what, lambda: step() if self.rank == 0 else None)[0]  # type: ignore[return-value]

    def call(self, step: Callable[[Communicator], T], communicator: Communicator) -> T:
        """Make collective calls in a step; the others hear of an error that is this rank's own."""
        try:
            return step(communicator)
        except CommunicationError:
            raise
        except BaseException as error:
            communicator.fail(error)
            raise

    def _raise(self, what: str, found: Outcomes[T]) -> NoReturn:
        mine, failed = found.mine, found.failures
        if mine is not None and len(failed) == self.size:
            if isinstance(mine, OSError) and not isinstance(mine, MpistratError):
                raise CheckpointError(f"{what}: {failed[self.rank].text}") from mine
            raise mine
        ranks = "; ".join(f"rank {rank}: {error.text}" for rank, error in failed.items())
        raise _of_all(failed.values(), f"{what} failed on {ranks}") from mine


def _of_all(failures: Collection[SentError], text: str) -> MpistratError:
    """Return an error of the class that all failures have, if it tells more than the default."""
    kinds = {error.kind for error in failures}
    if len(kinds) == 1:
        error = SentError(kinds.pop(), text).as_ours(CheckpointError)
        if isinstance(error, CheckpointError | UsageError):
            return error
    return CheckpointError(text)
