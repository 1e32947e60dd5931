"""Let each pass over a Python generator begin where the one before has ended, on all ranks.

Keras reads generators ahead of its steps, and drops what was read when it begins another pass: for
each validation, and in each call that gets the same generator again. How far it has read depends
on time. Over ranks each would drop another number of batches, and then take its share of others.
So what was read ahead is kept for the next pass.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from mpistrat.errors import UsageError
from mpistrat.tensorflow.keras.arrays import strategy_of_data
from mpistrat.tensorflow.own_strategies import is_over_ranks

__all__ = ["noted_passes", "noted_steps", "read_once"]

_READER = "_mpistrat_reader"  # of Keras's adapter of a generator
_NONE = object()


class _Kept:
    """The batches of one generator that were read and that no step has used.

    Attributes
    ----------
    first
        The number of the first of `batches`, counted from the first that was read.
    used
        How many batches steps have used, or Keras has looked at.
    user
        Identifies the reader that reads it at present.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.batches: deque[Any] = deque()
        self.first, self.used = 0, 0
        self.user: object = None


# A value must not refer to its generator, which would never be freed.
_kept: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()


class _Reader:
    """The passes over a generator of one of Keras's adapters. **Local.**

    The main thread counts passes and steps, and TensorFlow's thread reads batches. So the batch
    that a pass begins with does not depend on how far that thread is.
    """

    def __init__(self, generator: Any) -> None:
        self._generator, self._token = generator, object()
        self._kept = _kept.setdefault(generator, _Kept())
        self._kept.user = self._token
        self.looked_at: list[Any] = []
        self._number, self._start, self._steps = 0, 0, 0

    def look(self) -> Iterator[Any]:
        """Yield batches that Keras looks at, and gives to the first steps of each pass."""
        while found := self._read(self._kept.used, self._number):
            self._kept.used += 1
            yield from found

    def begin(self) -> None:
        """Begin a pass at the first batch that no step has used."""
        self._check()
        self._number += 1
        self._start, self._steps = self._kept.used, 0

    def use(self, count: int) -> None:
        """Count the batches of this pass that the next step uses."""
        self._check()
        self._steps += count
        self._kept.used = self._start + max(0, self._steps - len(self.looked_at))

    def __call__(self) -> Iterator[Any]:
        """Return the batches of this pass; for TensorFlow's thread."""
        return itertools.chain(self.looked_at, self._rest(self._start, self._number))

    def _rest(self, start: int, number: int) -> Iterator[Any]:
        for index in itertools.count(start):
            found = self._read(index, number)
            if not found:
                return
            yield from found

    def _read(self, index: int, number: int) -> list[Any]:
        """Return a list of one batch; an empty one at the end, or if another pass has begun."""
        kept = self._kept
        with kept.lock:
            is_over = kept.user is not self._token or number != self._number
            if is_over or index < kept.first:
                return []
            if index == kept.first + len(kept.batches):
                batch = next(self._generator, _NONE)
                if batch is _NONE:
                    return []
                kept.batches.append(batch)
            found = kept.batches[index - kept.first]
            # The next pass begins at `used`, and this one is at `index`.
            while kept.first < min(kept.used, index):
                kept.batches.popleft()
                kept.first += 1
            return [found]

    def _check(self) -> None:
        if self._kept.user is not self._token:
            raise UsageError(
                "one generator for two calls that take turns, such as fit and the evaluation of"
                " its validation_data; expected one for each: what one reads ahead is missing in"
                " the other, and how much that is depends on time, on each rank. Make two, such as"
                " fit(batches(), validation_data=batches())"
            )


def read_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``GeneratorDataAdapter.__init__``: over ranks, keep batches that are read ahead."""

    def init(self: Any, generator: Any) -> None:
        if not is_over_ranks(strategy_of_data()):
            original(self, generator)
            return
        reader = _Reader(generator)
        original(self, reader.look())
        reader.looked_at = self._first_batches
        self.generator = reader
        setattr(self, _READER, reader)

    return init


def noted_passes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``TFEpochIterator._get_iterator``, which Keras calls when it begins a pass."""

    def get_iterator(self: Any) -> Any:
        reader = _reader_of(self)
        if reader is not None:
            reader.begin()
        return original(self)

    return get_iterator


def noted_steps(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the generator of an epoch's steps: count the batches that each of them uses."""

    def enumerate_iterator(self: Any) -> Iterator[Any]:
        reader = _reader_of(self)
        for step in original(self):
            # Before the step: after the last one Keras may not come back here.
            if reader is not None:
                reader.use(self.steps_per_execution)
            yield step

    return enumerate_iterator


def _reader_of(epochs: Any) -> _Reader | None:
    reader: _Reader | None = getattr(epochs.data_adapter, _READER, None)
    return reader
