"""`RemoteValue`: the result of a scheduled function that may not have run yet."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

from mpistrat.coordinator.shipping import pack
from mpistrat.errors import ArgumentTypeError, CoordinatorError

__all__ = ["RemoteValue", "end_of_data"]


class RemoteValue:
    """The result of a scheduled function.

    Parameters
    ----------
    wait
        Returns when the function has finished or was given up.

    References
    ----------
    tf.distribute.experimental.coordinator.RemoteValue.
    """

    __slots__ = ("_error", "_is_done", "_packed", "_value", "_wait")

    def __init__(self, wait: Callable[[RemoteValue], None]) -> None:
        self._wait = wait
        self._is_done = False
        self._packed: Any = None
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether the function has finished, failed or was given up."""
        return self._is_done

    def fetch(self) -> Any:
        """Wait for the function and return what it returned.

        Raises
        ------
        Exception
            What it raised; its cause shows the worker's traceback.
        CoordinatorError
            It was given up since another one had failed; or it raised StopIteration, as ``next``
            at the end of a dataset does: that would end a ``map`` over results without a word.
        CommunicationError
            A member of the job was lost, or did nothing for ``MPISTRAT_TIMEOUT``.
        """
        if not self._is_done:
            self._wait(self)
        if isinstance(self._error, StopIteration):
            raise end_of_data(self._error) from self._error
        self.raise_error()
        packed = self._packed  # another thread may fetch it, too
        if packed is not None:
            # The value first: a thread that finds nothing packed returns it.
            self._value, self._packed = pickle.loads(packed), None
        return self._value

    def get(self) -> Any:
        """Do :meth:`fetch`, by TensorFlow's other name: there are no tensors here."""
        return self.fetch()

    def raise_error(self) -> None:
        """Raise what the function raised, if it has finished with an error."""
        if self._error is not None:
            raise self._error

    @property
    def error(self) -> BaseException | None:
        """What the function raised, if it has finished with an error."""
        return self._error

    def is_of(self, wait: Callable[[RemoteValue], None]) -> bool:
        """Tell whether it is of the coordinator that waits so."""
        return self._wait == wait

    def packed(self) -> Any:
        """Return the result for a worker; once there is one."""
        packed = self._packed  # gone once it was fetched
        return pack(self._value, "a result") if packed is None else packed

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "a RemoteValue travels as an argument of schedule, also in lists, tuples and dicts;"
            " for all else fetch() it"
        )

    def set_result(self, packed: Any) -> None:
        """Keep the result, still pickled: most are never looked at."""
        # `_is_done` last: fetch() reads it without a lock.
        self._packed, self._is_done = packed, True

    def set_error(self, error: BaseException) -> None:
        """Keep why there is no result."""
        self._error, self._is_done = error, True

    def __repr__(self) -> str:
        state = "failed" if self._error else "done" if self._is_done else "not done yet"
        return f"<RemoteValue: {state}>"


def end_of_data(error: StopIteration) -> CoordinatorError:
    """Return what is raised in place of a function's StopIteration, which would end loops."""
    return CoordinatorError(f"StopIteration: {error}")
