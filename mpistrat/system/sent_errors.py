"""`SentError`: an exception as plain data, which other processes can read and raise.

An exception cannot travel as it is. Some cannot be pickled; some are pickled and cannot be read,
since their constructor takes other arguments or their class exists on one rank only. So a text
and the nearest class of `mpistrat.errors` are sent, which every rank knows, and beside them the
pickled exception, as bytes, which a receiver may fail to read without harm.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from mpistrat import errors

__all__ = ["SentError"]


@dataclass(frozen=True)
class SentError:
    """What other processes learn of an exception.

    Attributes
    ----------
    kind
        Name of the nearest base class in `mpistrat.errors`; empty if it has none.
    text
        Its message, preceded by its class if that is not one of `mpistrat.errors`.
    pickled
        The exception itself; None if it was not asked for, or cannot be pickled and read again.
    """

    kind: str
    text: str
    pickled: bytes | None = None

    @classmethod
    def described(cls, error: BaseException) -> SentError:
        """Return the class and the text of an exception, without the exception. **Local.**"""
        kind, words = _kind(error), _words(error)
        return cls(kind, words if kind else f"{type(error).__name__}: {words}")

    @classmethod
    def whole(cls, error: BaseException, text: str | None = None) -> SentError:
        """Return an exception with its pickle, if it has one. **Local.**

        Parameters
        ----------
        error
            The exception.
        text
            Sent in place of its message, such as a traceback.
        """
        text = cls.described(error).text if text is None else text
        return cls(_kind(error), text, _pickled(error))

    def original(self) -> BaseException | None:
        """Return the exception itself, a copy; None if it cannot be had here. **Local.**"""
        return None if self.pickled is None else _read(self.pickled)

    def as_ours(self, default: type[errors.MpistratError]) -> errors.MpistratError:
        """Return an error of `mpistrat.errors` with the text, of `default` if it had none."""
        kind: type[errors.MpistratError] = getattr(errors, self.kind) if self.kind else default
        return kind(self.text)


def _kind(error: BaseException) -> str:
    bases = (kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return next((kind.__name__ for kind in bases), "")


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's __str__; what failed first must still be sent
        return "(its text cannot be read: __str__ raises)"


def _pickled(error: BaseException) -> bytes | None:
    import cloudpickle

    try:
        data = bytes(cloudpickle.dumps(error, 5))
    except Exception:  # noqa: BLE001 - whatever its reduction raises: the text is enough
        return None
    return None if _read(data) is None else data


def _read(data: bytes) -> BaseException | None:
    try:
        found: Any = pickle.loads(data)
    except Exception:  # noqa: BLE001 - its class may be missing, or its constructor fail
        return None
    return found if isinstance(found, BaseException) else None
