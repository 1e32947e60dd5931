"""Errors of collectives under TensorFlow: each class derives from TensorFlow's and mpistrat's.

In eager code, in a graph and in one that XLA compiles, by the native operation or by
``tf.numpy_function``, the same mistake raises the same class. Of what an operation raises
TensorFlow keeps a code and a text. So the last errors are remembered here, and what TensorFlow has
raised is looked up by its text.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from mpistrat import errors
from mpistrat.tensorflow.private import eager

__all__ = [
    "ArgumentTypeError",
    "ClosedError",
    "CommunicationError",
    "CommunicationTimeoutError",
    "MismatchError",
    "MpistratError",
    "PeerLostError",
    "UsageError",
    "WorkerLostError",
    "of_both",
    "passed_on",
    "translate_also",
    "translated",
]

_T = TypeVar("_T")
_Aborted: Any = tf.errors.AbortedError
_DeadlineExceeded: Any = tf.errors.DeadlineExceededError
_Internal: Any = tf.errors.InternalError
_InvalidArgument: Any = tf.errors.InvalidArgumentError
_Unavailable: Any = tf.errors.UnavailableError


class _Ours:
    """Base that reconciles the constructors of TensorFlow's and mpistrat's errors."""

    def __init__(self) -> None:
        super().__init__("")  # type: ignore[call-arg] # the text is kept as TensorFlow keeps it


class MismatchError(_InvalidArgument, _Ours, errors.MismatchError):  # type: ignore[misc]
    """The ranks called different collectives, or the same one with unequal arguments."""


class CommunicationTimeoutError(
    _DeadlineExceeded,  # type: ignore[misc]
    _Ours,
    errors.CommunicationTimeoutError,
):
    """A wait passed its deadline."""


class PeerLostError(_Aborted, _Ours, errors.PeerLostError):  # type: ignore[misc]
    """Another rank failed, was interrupted or left."""


class WorkerLostError(_Unavailable, _Ours, errors.PeerLostError):  # type: ignore[misc]
    """A task of TensorFlow's cluster has gone."""


class CommunicationError(_Aborted, _Ours, errors.CommunicationError):  # type: ignore[misc]
    """A collective failed."""


class ArgumentTypeError(_InvalidArgument, _Ours, errors.ArgumentTypeError):  # type: ignore[misc]
    """A tensor of a dtype that cannot be sent."""


class ClosedError(_InvalidArgument, _Ours, errors.ClosedError):  # type: ignore[misc]
    """A collective of a strategy that was closed."""


class UsageError(_InvalidArgument, _Ours, errors.UsageError):  # type: ignore[misc]
    """An argument that cannot be right."""


class MpistratError(_Internal, _Ours, errors.MpistratError):  # type: ignore[misc]
    """Any other error of mpistrat."""


_CLASSES: dict[type, Any] = {
    one.__bases__[-1]: one
    for one in (
        MismatchError,
        CommunicationTimeoutError,
        PeerLostError,
        CommunicationError,
        ArgumentTypeError,
        ClosedError,
        UsageError,
        MpistratError,
    )
}


def passed_on(call: Callable[..., _T], *arguments: Any) -> _T:
    """Return ``call(*arguments)``; turn errors of mpistrat into errors of both. **Local.**"""
    try:
        return call(*arguments)
    except errors.MpistratError as error:
        raise of_both(error) from error


def of_both(error: errors.MpistratError, kind: Any = None) -> Any:
    """Return an error of TensorFlow's class and of mpistrat's, and remember it. **Local.**

    Its class is `kind`, or the one of this module for that of `error`.
    """
    if kind is None:
        # The nearest class that is here: an error of no class of its own is a MpistratError.
        kind = next(_CLASSES[base] for base in type(error).__mro__ if base in _CLASSES)
    raised = _Raised(kind, str(error), vars(error))
    _last.append(raised)
    return raised.again(str(error))


class _Raised:
    """The class and text of a raised error; the error itself would keep arrays alive."""

    def __init__(self, kind: Any, text: str, attributes: dict[str, Any]) -> None:
        self._kind, self._attributes = kind, dict(attributes)
        self._start = f"{kind.__name__}: {text}"[:_COMPARED]

    def is_in(self, text: str) -> bool:
        """Tell whether an error of TensorFlow has the text of this one."""
        return self._start in text

    def again(self, text: str) -> Any:
        """Return the error anew, with TensorFlow's longer text, where that tells more."""
        error = self._kind(None, None, _AROUND.sub("", text))
        vars(error).update(self._attributes)
        return error


# What TensorFlow adds to an error of an operation that is not in a graph: it names ours.
_AROUND = re.compile(r"^\{\{function_node __wrapped__\w+[^}]*\}\} \w+: | \[Op:\w+\] name: ?$")
_COMPARED = 2000  # characters: TensorFlow may cut what is longer
_last: collections.deque[_Raised] = collections.deque(maxlen=16)


def translated(error: Any, function: str = "") -> Any:
    """Return mpistrat's error for one of TensorFlow's, or the latter if it has none. **Local.**

    `function` is the name of the graph that has failed, if it was one.
    """
    # A copy: threads that wait in collectives may append meanwhile. The newest goes first, since
    # texts may be equal.
    found = (one for one in reversed(tuple(_last)) if one.is_in(error.message))
    ours = next((one.again(error.message) for one in found), None)
    others = [other for translate in _others if (other := translate(error, function)) is not None]
    return next(one for one in (ours, *others, error) if one is not None)


_others: list[Callable[[Any, str], Any]] = []


def translate_also(translate: Callable[[Any, str], Any]) -> None:
    """Call `translate` with each error of a graph, and the graph's name. **Local.**

    It returns an error to raise in its place, or None.
    """
    _others.append(translate)


eager.translate_errors_of_functions(translated)
