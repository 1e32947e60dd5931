"""Batch, repeat, shuffle and slice streams of elements; datasets.py is built on these.

A stream is a function of the epoch that returns a fresh iterator. It keeps no state, so that
every rank that opens the same epoch sees the same elements in the same order, whatever was
iterated before. Nested repetition makes the epoch longer: the third round of a ``repeat`` in
epoch 0 is epoch ``(0, 2)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.types import Nest

__all__ = [
    "INFINITE",
    "UNKNOWN",
    "Epoch",
    "Stream",
    "batched",
    "batched_length",
    "repeated",
    "repeated_length",
    "shuffled",
    "sliced",
    "sliced_length",
]

Epoch: TypeAlias = tuple[int, ...]
Stream: TypeAlias = Callable[[Epoch], Iterator[Any]]

INFINITE = -1
"""Length of a dataset without an end."""

UNKNOWN = -2
"""Length of a dataset that can only be counted by walking it."""


def batched(stream: Stream, size: int, drop_remainder: bool) -> Stream:
    """Stack each `size` elements into one."""

    def run(epoch: Epoch) -> Iterator[Any]:
        elements = stream(epoch)
        while group := list(itertools.islice(elements, size)):
            if len(group) == size or not drop_remainder:
                yield _stack(group)

    return run


def _stack(group: list[Any]) -> Nest:
    # Row numbers of a data set of slices: a batch of them stays numbers until it is loaded.
    if isinstance(group[0], int):
        return np.array(group, np.intp)
    import optree

    try:
        return optree.tree_map(lambda *leaves: np.stack(leaves), *group, none_is_leaf=True)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"batch: {len(group)} elements do not stack into one: {error}; make them alike with"
            " map first, or use batches of 1"
        ) from error


def batched_length(length: int, size: int, drop_remainder: bool) -> int:
    """Return the length of a batched stream."""
    if length < 0:
        return length
    return length // size if drop_remainder else -(-length // size)


def repeated(stream: Stream, count: int | None) -> Stream:
    """Go through the stream `count` times, or for ever if that is None."""

    def run(epoch: Epoch) -> Iterator[Any]:
        rounds = itertools.count() if count is None else range(count)
        for index in rounds:
            is_empty = True
            for element in stream((*epoch, index)):
                is_empty = False
                yield element
            if is_empty and count is None:
                return  # nothing will ever come: end rather than spin

    return run


def repeated_length(length: int, count: int | None) -> int:
    """Return the length of a repeated stream."""
    if length == 0 or count == 0:
        return 0
    if count is None:
        return INFINITE
    return length if length < 0 else length * count


def shuffled(stream: Stream, buffer_size: int | None, seed: int, reshuffle: bool) -> Stream:
    """Permute the stream: all of it if `buffer_size` is None, else within a moving window."""

    def run(epoch: Epoch) -> Iterator[Any]:
        key = epoch if reshuffle else ()
        # By seed and epoch alone: no generator goes on from what this process has drawn before.
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))
        window: list[Any] = []
        for element in stream(epoch):
            if buffer_size is None or len(window) < buffer_size:
                window.append(element)
            else:
                chosen = int(rng.integers(buffer_size))
                yield window[chosen]
                window[chosen] = element
        for chosen in rng.permutation(len(window)):
            yield window[chosen]

    return run


def sliced(stream: Stream, start: int, stop: int | None, step: int) -> Stream:
    """Keep what ``list(stream)[start:stop:step]`` would hold."""
    return lambda epoch: itertools.islice(stream(epoch), start, stop, step)


def sliced_length(length: int, start: int, stop: int | None, step: int) -> int:
    """Return the length of a sliced stream."""
    if length == UNKNOWN or (length == INFINITE and stop is None):
        return length
    ends = [end for end in (length, stop) if end is not None and end >= 0]
    return len(range(start, min(ends), step))
