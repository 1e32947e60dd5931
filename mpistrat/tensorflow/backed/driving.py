"""One rank drives TensorFlow's strategy; the others run the same program, and wait for results.

What only the driving rank has, such as what ``run`` returns, is an `Elsewhere` on the others. They
wait in ``reduce``, ``gather``, ``on_driver`` and for the next batch of a dataset, asleep and
without a deadline: what ends the wait too early is the end, or an error, of another rank.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.errors import ArgumentTypeError, MpistratError, UsageError
from mpistrat.tensorflow.errors import of_both

__all__ = ["Elsewhere", "Link"]


class Elsewhere(tf.experimental.ExtensionType):  # type: ignore[misc]
    """Stands for a value that only the driving rank has; functions can take and return it."""

    driver: int

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise of_both(
            UsageError(
                f"this value is on rank {self.driver} only, which drives; use it inside of what"
                " strategy.run or strategy.on_driver calls, or have it brought here by"
                " strategy.reduce or strategy.gather"
            )
        )

    numpy = __float__ = __int__ = __bool__ = __array__ = __iter__ = __getitem__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse


class Link:
    """How what the driving rank finds reaches the others.

    Parameters
    ----------
    communicator
        Between all ranks.
    driver
        The rank that drives.
    """

    def __init__(self, communicator: Communicator, driver: int) -> None:
        self.communicator, self.driver = communicator, driver
        self._is_alone = False

    @property
    def is_driver(self) -> bool:
        """Whether this rank drives."""
        return self.communicator.rank == self.driver

    @property
    def is_alone(self) -> bool:
        """Whether the driving rank runs what the others do not."""
        return self._is_alone

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Say so for this block. **Local.**"""
        before, self._is_alone = self._is_alone, True
        try:
            yield
        finally:
            self._is_alone = before

    def told(self, what: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returns on the driving rank, or raise its error. **Collective.**

        The others call nothing. Of distributed values they get an `Elsewhere`.
        """
        if self._is_alone:
            return make()
        self._check_eager(what)
        if self.is_driver:
            return self._tell(what, make)
        value, error, text = self.communicator.bcast_object(None, self.driver, timeout=math.inf)
        if text is not None:
            whose = MpistratError(f"rank {self.driver}, which drives, raised this in {what}")
            raise (error or MpistratError(f"{what} failed: {text}")) from whose
        return tf.nest.map_structure(self._received, value)

    def _tell(self, what: str, make: Callable[[], Any]) -> Any:
        try:
            with self.alone():
                value = make()
                sent = tf.nest.map_structure(_sent, value)
                _check_sent(what, sent)
        except Exception as error:
            if self.communicator.gate.broken is not None:  # the others know
                raise
            text = f"{type(error).__name__}: {error}"
            self._say((None, _picklable(error), text))
            raise
        except BaseException as error:
            self.communicator.fail(error)
            raise
        self._say((sent, None, None))
        return value

    def _say(self, outcome: Any) -> None:
        self.communicator.bcast_object(outcome, self.driver)

    def _received(self, value: Any) -> Any:
        return Elsewhere(self.driver) if isinstance(value, _Kept) else value

    def _check_eager(self, what: str) -> None:
        if not tf.executing_eagerly():
            raise of_both(
                UsageError(
                    f"{what} inside of a tf.function, where rank {self.driver} drives and the"
                    " others wait; call it outside, or have the function called by"
                    " strategy.on_driver(function, ...), which gives all ranks its result"
                )
            )


class _Kept:
    """Stands in a message for what stays on the driving rank."""


def _sent(value: Any) -> Any:
    """Return what of a leaf is sent."""
    if isinstance(value, tf.distribute.DistributedValues):
        return _Kept()
    return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value


def _check_sent(what: str, value: Any) -> None:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception as error:
        raise ArgumentTypeError(
            f"{what}: its result cannot be sent to the other ranks ({error}); return tensors,"
            " arrays or plain data"
        ) from error


def _picklable(error: Exception) -> Exception | None:
    """Return an error that can be raised elsewhere, too; None if it cannot travel."""
    import cloudpickle

    try:
        found: Exception = pickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its constructor does: its text is sent instead
        return None
    return found
