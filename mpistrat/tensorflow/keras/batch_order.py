"""Hook Keras's shuffling of a PyDataset's batches: all ranks get one order.

Keras shuffles them by Python's own generator. Where a program has not given that one seed on all
ranks, each rank would take its share of an order of its own.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mpistrat.collectives import Communicator

__all__ = ["agree_on_batches", "install", "shuffled_alike", "shuffled_alike_ahead"]

_MODULE = "keras.src.trainers.data_adapters.py_dataset_adapter"
_NAME = "_mpistrat_random"
_local = threading.local()  # Keras shuffles on threads of its own


class _Random:
    """Replace the module ``random`` in Keras's; shuffle by this thread's generator, if any."""

    def shuffle(self, items: list[Any]) -> None:
        (getattr(_local, "random", None) or random).shuffle(items)

    def __getattr__(self, name: str) -> Any:
        return getattr(random, name)


def install() -> None:
    """Replace the module ``random`` in Keras's adapter of PyDatasets. **Local.**"""
    sys.modules[_MODULE].random = _Random()  # type: ignore[attr-defined]


def agree_on_batches(adapter: Any, communicator: Communicator) -> None:
    """Give ranks one order of the batches of `adapter`, unless they have one. **Collective.**

    They have one if Python's generator is in the same state on all of them.
    """
    kind = getattr(sys.modules[_MODULE], "PyDatasetAdapter", None)
    if kind is None or not isinstance(adapter, kind) or not adapter.shuffle:
        return
    # A digest in place of 625 numbers.
    state = hashlib.blake2b(repr(random.getstate()).encode(), digest_size=8).hexdigest()
    # Not drawn from Python's generator, whose state is the program's.
    with communicator.labelled("the order of batches"):
        told = communicator.allgather_object((state, random.SystemRandom().getrandbits(31)))
    if len({state for state, _ in told}) > 1:
        common = random.Random(told[0][1])
        setattr(adapter, _NAME, common)
        if adapter.enqueuer is not None:
            # With several workers a thread of the enqueuer shuffles, which knows no adapter.
            setattr(adapter.enqueuer, _NAME, common)


def shuffled_alike(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the generator of an epoch's batches, which shuffles before the first."""

    def generate(self: Any) -> Iterator[Any]:
        # Keras shuffles when it is asked for the first batch, so the generator is set until then.
        batches = original(self)
        _local.random = getattr(self, _NAME, None)
        try:
            first = next(batches, None)
        finally:
            _local.random = None
        if first is not None:
            yield first
            yield from batches

    return generate


def shuffled_alike_ahead(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``OrderedEnqueuer._run``, the thread that has several workers make batches ahead."""

    def run(self: Any) -> None:
        _local.random = getattr(self, _NAME, None)
        try:
            original(self)
        finally:
            _local.random = None

    return run
