"""Saving with one driver: it writes the files, and the others wait.

A save of what was made in the strategy's scope is a call of all ranks. The driving rank alone
saves by ``strategy.on_driver``, as all that it does alone.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import tensorflow as tf

from mpistrat.collectives.checking.call_site import caller
from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.private import driving as private_driving
from mpistrat.tensorflow.wrapped_strategy.one_driver.link import DriverLink

__all__ = ["install", "model_by_driver"]

_LOG = get_logger(__name__)


class _Save(NamedTuple):
    """A save that all ranks make.

    Attributes
    ----------
    what
        The call, in words.
    key
        What has to be equal on all ranks: the kind, and the name of the file. Its folder may
        differ, since ranks that write nothing often have one of their own, to delete. So may a
        checkpoint's number: saves of the driving rank alone have raised it there.
    """

    what: str
    key: tuple[str, str]

    @classmethod
    def of_model(cls, path: Any) -> _Save:
        """Return the one that this rank makes now, to a path. **Local.**"""
        return cls(f"saving a model, {path}, at {caller()}", ("model", _name(path)))

    @classmethod
    def of_checkpoint(cls, path: Any) -> _Save:
        """Return the one that this rank makes now, to a path without or with a number."""
        key = "checkpoint", re.sub(r"-\d+$", "", _name(path))
        return cls(f"saving a checkpoint, {path}, at {caller()}", key)


def _name(path: Any) -> str:
    """Return the last part of a path; nothing of what is none, such as an open file."""
    is_path = isinstance(path, str | bytes | os.PathLike)
    return os.path.basename(os.fsdecode(path).rstrip("/")) if is_path else ""


@functools.cache
def install() -> None:
    """From now on only driving ranks write checkpoints and SavedModels. **Local.**"""
    private_driving.wrap_writers(_checkpoint, _in_threads, model_by_driver, _beside)


def model_by_driver(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what saves an object, its first argument: who waits writes nothing. **Collective.**"""

    @functools.wraps(original)
    def save(what: Any, *args: Any, **kwargs: Any) -> Any:
        link = _link(what)
        if link is None or link.is_alone:
            return original(what, *args, **kwargs)
        here: list[Any] = []
        path = next(iter((*args, *kwargs.values())), None)
        _written(link, _Save.of_model(path), lambda: here.append(original(what, *args, **kwargs)))
        return here[0] if here else None

    return save


def _written(link: DriverLink, save: _Save, write: Callable[[], Any]) -> Any:
    """Have the driving rank write, and the others wait until all is there."""
    # A broken communicator stops ranks that wait: for them `on_driver` raises what broke it.
    is_broken = link.communicator.health.broken is not None
    if not (link.communicator.is_closed or (is_broken and link.is_driver)):
        return link.on_driver(save.what, write, save.key)
    if link.is_driver:  # which may rescue what it has
        return write()
    text = f"{save.what} after strategy.close(): rank {link.driver}, which drove, writes it"
    warn_once(_LOG, "saving after close", f"{text}, and no other rank waits until it is there")
    return None


# ----------------------------------------------------------------------------------- checkpoints


def _checkpoint(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the one method by which tf.train.Checkpoint and its manager write."""

    @functools.wraps(original)
    def write(self: Any, file_prefix: Any, options: Any = None) -> Any:
        link = _link(self)
        if link is None or link.is_alone:
            return original(self, file_prefix, options)
        save = _Save.of_checkpoint(file_prefix)
        told = _written(link, save, lambda: _numbered(self, original(self, file_prefix, options)))
        # After close() there is no message: the ranks that wait write nothing, and know of no
        # path.
        path, number = told or (None, None)
        if not link.is_driver and path is not None:
            # The next save() numbers its file by this counter, and all ranks have to name the same
            # file.
            private_driving.number(self, number)
            _note(path, getattr(options, "experimental_write_callbacks", None) or ())
        return path

    return write


def _numbered(checkpoint: Any, path: str) -> tuple[str, int | None]:
    return path, private_driving.number_of(checkpoint)


def _note(path: str, callbacks: Iterable[Any]) -> None:
    """Let TensorFlow's managers know of a checkpoint; the user's callbacks ran where it is."""
    # TensorFlow's callback updates the manager in memory, then writes the file `checkpoint` and
    # deletes old ones. On ranks that wait these two are left to the driving rank.
    with _nothing_beside():
        for callback in callbacks:
            if str(getattr(callback, "__module__", "")).startswith("tensorflow."):
                callback(path)


def _in_threads(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def checkpointer(self: Any) -> Any:
        if _link(self) is not None:
            # A thread of TensorFlow's would write while this rank says that the file is there.
            raise UsageError(
                "experimental_enable_async_checkpoint where one rank drives, and the others wait"
                " until the checkpoint is there; leave this option out"
            )
        return original(self)

    return checkpointer


_is_silent: ContextVar[bool] = ContextVar("is_silent", default=False)


@contextmanager
def _nothing_beside() -> Iterator[None]:
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def _beside(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(*args: Any, **kwargs: Any) -> Any:
        return None if _is_silent.get() else original(*args, **kwargs)

    return write


# ----------------------------------------------------------------------------- whose object it is


def _link(what: Any) -> DriverLink | None:
    """Return the link of the strategy that an object was made in, or something in it."""
    found = _strategy_link(what)
    if found is not None:
        return found
    parts = tf.train.TrackableView(what).descendants() if _is_trackable(what) else ()
    return next((link for part in parts if (link := _strategy_link(part)) is not None), None)


def _is_trackable(what: Any) -> bool:
    return hasattr(what, "_trackable_children")


def _strategy_link(part: Any) -> DriverLink | None:
    strategy = getattr(part, "_distribute_strategy", None)
    if callable(strategy):  # a weak reference
        strategy = strategy()
    return getattr(strategy, "_mpistrat_link", None)
