"""Examples of classes that a network can tell apart, the same on all ranks."""

from __future__ import annotations

from functools import cache

import numpy as np

import mpistrat
from mpistrat.bench.training_loop.task import CLASSES, INPUTS
from mpistrat.types import Array

__all__ = ["COUNT", "global_batch", "make_examples"]

COUNT = 4096  # however many ranks there are: a batch may hold an example several times
_SPREAD = 2.0  # around the centre of a class; two centres are some 22 apart


@cache
def make_examples() -> tuple[Array, Array]:
    """Return images, (examples, inputs) of float32, and their labels, (examples,).

    Every class is a cloud around a centre of its own, so that its examples are linearly separable
    from all others. Each input has a mean of 0 and a variance of 1.
    """
    random = mpistrat.random.generator(0, stream="bench examples")
    centres = random.normal(size=(CLASSES, INPUTS))
    labels = random.integers(0, CLASSES, COUNT)
    images = centres[labels] + random.normal(0.0, _SPREAD, (COUNT, INPUTS))
    return (images / np.sqrt(1 + _SPREAD**2)).astype(np.float32), labels


def global_batch(step: int, size: int) -> tuple[Array, Array]:
    """Return the global batch of a step: the next `size` examples, over and over."""
    images, labels = make_examples()
    rows = (step * size + np.arange(size)) % COUNT
    return images[rows], labels[rows]
