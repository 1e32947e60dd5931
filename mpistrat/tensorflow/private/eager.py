"""TensorFlow's eager context: every function that it runs, the global seed, and its threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from mpistrat.collectives.health.interrupts import foreign
from mpistrat.tensorflow.private.api import load

__all__ = [
    "after_functions",
    "global_seed",
    "no_global_seed",
    "stop_spinning",
    "translate_errors_of_functions",
    "watch_functions",
]

_eager: Any = load({"eager.context": ("Context", "context", "global_seed")})["eager.context"]


def translate_errors_of_functions(translated: Callable[[Any, str], BaseException]) -> None:
    """Let every ``tf.function`` raise its error as `translated` converts it, given its name."""
    context: Any = _eager.Context
    call_function = context.call_function

    def call(self: Any, name: bytes, tensor_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        for notice in _notices:
            notice(name, tensor_inputs)
        try:
            # This may be the main thread, which handles Ctrl-C, while the collective waits in
            # another.
            found = foreign(call_function, self, name, tensor_inputs, *args, **kwargs)
        except tf.errors.OpError as error:
            raise translated(error, tf.compat.as_str(name)) from None
        # Not after an error: these may be collective, and the other ranks may not have failed.
        for follow in _followers:
            follow(tensor_inputs)
        return found

    context.call_function = call


_notices: list[Callable[[bytes, Sequence[Any]], None]] = []
_followers: list[Callable[[Sequence[Any]], None]] = []


def watch_functions(notice: Callable[[bytes, Sequence[Any]], None]) -> None:
    """Call `notice` with the name and the inputs of every function that is to run eagerly."""
    _notices.append(notice)


def after_functions(follow: Callable[[Sequence[Any]], None]) -> None:
    """Call `follow` after each function that has run eagerly, with its inputs."""
    _followers.append(follow)


def stop_spinning() -> None:
    """Let TensorFlow's idle threads sleep at once; for use before it starts. **Local.**"""
    context = _eager.context()
    # There is no public switch. TensorFlow reads its configuration when it starts.
    config = tf.compat.v1.ConfigProto()
    if context._config is not None:  # the program's
        config.CopyFrom(context._config)
    config.experimental.disable_thread_spinning = True
    context._config = config


def global_seed() -> int | None:
    """Return the seed of ``tf.random.set_seed``, or None."""
    seed: int | None = _eager.global_seed()
    return seed


@contextmanager
def no_global_seed() -> Iterator[None]:
    """Use given seeds alone in this block, without the seed of ``tf.random.set_seed``."""
    context = _eager.context()
    # Not by set_seed, which also restarts the numbering of the program's random operations.
    before, context._seed = context._seed, None
    try:
        yield
    finally:
        context._seed = before
