"""`DriverLink`: run a call on the driving rank; send its result or its error to the others.

A result that stays on the driving rank, such as that of ``run``, is a `ValueOnDriver` on the
others. They wait in ``reduce``, ``gather``, ``on_driver`` and for the next batch of a dataset,
asleep and without a deadline: only the end or an error of another rank ends the wait early.
"""

from __future__ import annotations

import functools
import math
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.raise_on_all import attempt
from mpistrat.collectives.pickling import pickled
from mpistrat.errors import ArgumentTypeError, MpistratError, UsageError
from mpistrat.system.sent_errors import SentError
from mpistrat.tensorflow.errors import of_both, passed_on
from mpistrat.tensorflow.private import driving as private_driving
from mpistrat.tensorflow.wrapped_strategy.one_driver.driver_value import ValueOnDriver

__all__ = ["DriverLink", "stays_there"]

_SAVING = (
    "a save is a call of all ranks, with one file name; to save on the driving rank alone, call"
    " strategy.on_driver(save, path) on all ranks"
)


class DriverLink:
    """The connection of the driving rank to the ranks that wait.

    Parameters
    ----------
    communicator
        Between all ranks.
    driver
        The rank that drives.
    """

    def __init__(self, communicator: Communicator, driver: int) -> None:
        self.communicator, self.driver = communicator, driver
        _retrace()

    @property
    def is_driver(self) -> bool:
        """Whether this rank drives."""
        return self.communicator.rank == self.driver

    @property
    def is_alone(self) -> bool:
        """Whether this thread runs what the other ranks do not, or TensorFlow does so for one."""
        return id(self) in _alone()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Say so for this block. **Local.**"""
        # For this thread and what inherits its context; and for TensorFlow's own threads, which
        # inherit none (`_alone`).
        token = _here.set((*_here.get(), id(self)))
        _anywhere.append(id(self))
        try:
            yield
        finally:
            # One entry of this link: another thread may be alone at the same time.
            _anywhere.remove(id(self))
            _here.reset(token)

    def on_driver(self, what: str, make: Callable[[], Any], save: Any = None) -> Any:
        """Return what `make` returns on the driving rank, or raise its error. **Collective.**

        The others call nothing. Of distributed values they get a `ValueOnDriver`. They have to
        make the same calls in the same order.

        Parameters
        ----------
        what
            The call, in words.
        make
            What the driving rank calls; not once what is between the ranks is closed or broken.
        save
            Of a save, what has to be equal on all ranks: `what` says in which folder, and that
            may differ. None for other calls, of which `what` has to be equal.
        """
        if self.is_alone:
            return make()
        self._check_place(what)
        # Before anything is made: a training whose result nobody can be told of would be lost.
        passed_on(self.communicator.health.check_open)
        if self.is_driver:
            return self._tell(what, make, save)
        value, failure = self._awaited(what, save)
        if failure is not None:
            whose = MpistratError(f"rank {self.driver}, which drives, raised this in {what}")
            error = failure.original() or MpistratError(f"{what} failed: {failure.text}")
            raise error from whose
        # Pickled by the driving rank before it was sent, so what cannot be sent is an error on
        # all.
        return tf.nest.map_structure(self._received, pickle.loads(value))

    def meet(self, what: str) -> None:
        """Wait for the other ranks, unless what is between them is closed or broken already."""
        if not self.communicator.is_closed and self.communicator.health.broken is None:
            self.on_driver(what, lambda: None)

    def _awaited(self, what: str, save: Any) -> Any:
        """Return the result of a call as it was sent, and the error if it failed."""
        called, its_save, *outcome = self._bcast(None, f"waits in {what}", timeout=math.inf)
        # The texts of saves name folders, which may differ by rank, so their keys are compared.
        is_same = its_save == save and (save is not None or called == what)
        if not is_same:
            raise self._differs(what, called, is_save=save is not None or its_save is not None)
        return outcome

    def _differs(self, what: str, called: str, is_save: bool) -> Exception:
        text = (
            f"rank {self.communicator.rank} waits in {what}, but rank {self.driver}, which drives,"
            f" called {called}"
        )
        same = "all ranks have to make the same calls in the same order"
        # Of a save the advice comes first: the driving rank is sent the start of a long text only.
        error = UsageError(f"{_SAVING}: {text}" if is_save else f"{text}; {same}")
        # The driving rank is past this call. It hears of the error in its next one.
        self.communicator.fail(error)
        found: Exception = of_both(error)
        return found

    def _tell(self, what: str, make: Callable[[], Any], save: Any) -> Any:
        hint = "" if save is None else f"; {_SAVING}"
        made: list[Any] = []

        def make_and_pack() -> bytes:
            # What `make` calls of this strategy is local: the others have not called it.
            with self.alone():
                made.append(make())
                return _pickled(what, tf.nest.map_structure(_sent, made[0]))

        # Not raised before the others are told, who wait without a deadline.
        sent, error = attempt(self.communicator, make_and_pack)
        if error is not None and self.communicator.health.broken is not None:  # the others know
            raise error
        failure = None if error is None else SentError.whole(error)
        self._bcast((what, save, sent, failure), f"tells of {what}{hint}")
        if error is not None:
            raise error
        return made[0]

    def _bcast(self, message: Any, remark: str, timeout: float | None = None) -> Any:
        call_log = self.communicator.call_log
        # Shown where calls differ, but not compared: texts of saves differ by rank.
        call_log.remark = remark
        try:
            return self.communicator.bcast_object(message, self.driver, timeout=timeout)
        finally:
            call_log.remark = None

    def _received(self, value: Any) -> Any:
        return ValueOnDriver(self.driver) if isinstance(value, _Kept) else value

    def _check_place(self, what: str) -> None:
        replica = tf.distribute.get_replica_context() if tf.distribute.has_strategy() else None
        if tf.executing_eagerly() and replica is None:
            return
        where = "what strategy.run calls" if replica is not None else "a tf.function"
        raise of_both(
            UsageError(
                f"{what} inside of {where}, where rank {self.driver} drives and the"
                " others wait; call it outside, or have the function called by"
                " strategy.on_driver(function, ...), which gives all ranks its result"
            )
        )


_here: ContextVar[tuple[int, ...]] = ContextVar("alone", default=())
_anywhere: list[int] = []


def _alone() -> Sequence[int]:
    """Return the links that are alone for this thread.

    Threads of TensorFlow's, for replicas and datasets, inherit nothing: they work for another one.
    """
    thread = threading.current_thread()
    is_theirs = isinstance(thread, threading._DummyThread) or "tensorflow" in type(
        thread
    ).__module__.split(".")
    # A copy: other threads change the list while the caller looks for its last entry.
    return tuple(_anywhere) if is_theirs else _here.get()


@functools.cache
def _retrace() -> None:
    """Have functions traced again on a driving rank that is alone: there they may have more."""
    private_driving.retrace_for_each(lambda: next(reversed(_alone()), None))


class _Kept:
    """Stands in a message for what stays on the driving rank."""


def stays_there(structure: Any) -> Any:
    """Return a nest of what is a `ValueOnDriver` on the ranks that are told."""
    return tf.nest.map_structure(lambda _: _Kept(), structure)


def _sent(value: Any) -> Any:
    """Return what of a leaf is sent."""
    if isinstance(value, tf.distribute.DistributedValues):
        return _Kept()
    return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value


def _pickled(what: str, value: Any) -> bytes:
    """Return what is sent, or raise, before the others get any of it."""
    try:
        return pickled(value)
    except Exception as error:
        raise ArgumentTypeError(
            f"{what}: its result cannot be sent to the other ranks ({error}); return tensors,"
            " arrays or plain data"
        ) from error
