"""The ranks that save or restore together: an error on one is an error on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from mpistrat import errors
from mpistrat.collectives import Communicator
from mpistrat.errors import CheckpointError, CommunicationError, MpistratError

__all__ = ["Team"]

T = TypeVar("T")
_Told = tuple[Any, "tuple[str, str] | None"]


class Team:
    """Ranks that take each step together: an error on one rank raises on all.

    Parameters
    ----------
    communicator
        Over the ranks; None if this process is alone.
    """

    def __init__(self, communicator: Communicator | None) -> None:
        self._communicator = communicator
        self.rank = 0 if communicator is None else communicator.rank
        self.size = 1 if communicator is None else communicator.size

    def take(self, what: str, step: Callable[[], T]) -> list[T]:
        """Take a step on each rank, and return all ranks' results by rank. **Collective.**

        Parameters
        ----------
        what
            Names the step in errors.
        step
            Returns plain data, which is sent to all ranks.

        Raises
        ------
        CheckpointError
            The step failed here for a reason of the system's, or on other ranks. It names them.
        Exception
            Any other error of the step on this rank.
        """
        value: T | None = None
        failure: Exception | None = None
        try:
            value = step()
        except CommunicationError:
            raise
        except Exception as error:  # noqa: BLE001 - told to the peers, and raised below
            failure = error
        except BaseException as error:
            if self._communicator is not None:
                self._communicator.fail(error)
            raise
        everyone = self._share((value, None if failure is None else _told(failure)))
        if any(trouble for _, trouble in everyone):
            self._raise(what, failure, [trouble for _, trouble in everyone])
        return [one for one, _ in everyone]

    def take_first(self, what: str, step: Callable[[], T]) -> T:
        """Take a step on rank 0 only, and return its result on every rank. **Collective.**"""
        return self.take(what, lambda: step() if self.rank == 0 else None)[0]  # type: ignore[return-value]

    def _share(self, mine: _Told) -> list[_Told]:
        if self._communicator is None:
            return [mine]
        everyone: list[_Told] = self._communicator.allgather_object(mine)
        return everyone

    def _raise(
        self, what: str, failure: Exception | None, troubles: list[tuple[str, str] | None]
    ) -> NoReturn:
        failed = {rank: trouble for rank, trouble in enumerate(troubles) if trouble is not None}
        if failure is not None and (self.size == 1 or len(failed) == self.size):
            if isinstance(failure, OSError) and not isinstance(failure, MpistratError):
                raise CheckpointError(f"{what}: {_describe(failure)}") from failure
            raise failure
        text = "; ".join(f"rank {rank}: {text}" for rank, (_, text) in failed.items())
        kinds = {kind for kind, _ in failed.values()}
        made = getattr(errors, kinds.pop(), None) if len(kinds) == 1 else None
        if made is None or not issubclass(made, CheckpointError | errors.UsageError):
            made = CheckpointError
        raise made(f"{what} failed on {text}") from failure


def _told(error: Exception) -> tuple[str, str]:
    return type(error).__name__, _describe(error)


def _describe(error: Exception) -> str:
    if isinstance(error, MpistratError):
        return str(error)
    return f"{type(error).__name__}: {error}"
