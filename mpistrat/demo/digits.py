"""The handwritten digits that ship with scikit-learn: 1797 images of 8 by 8 pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpistrat.types import Array

__all__ = ["CLASSES", "Digits", "Examples", "load", "split"]

CLASSES = 10
_TEST_SHARE = 0.2
_SPLIT_SEED = 0  # not an option: accuracies are only comparable on the same test images


@dataclass(frozen=True)
class Examples:
    """Images with their labels.

    Attributes
    ----------
    images
        float64, (examples, pixels), from 0 to 1.
    labels
        int64, (examples,), from 0 to 9.
    """

    images: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Digits:
    """Examples to learn from, and others to test on."""

    train: Examples
    test: Examples


def load() -> Digits:
    """Read the images from scikit-learn's files and split them. **Local**, downloads nothing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return split(images / 16.0, labels.astype(np.int64))


def split(images: Array, labels: Array) -> Digits:
    """Put a fifth of the examples aside for the test, always the same ones."""
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    count = len(labels) - round(len(labels) * _TEST_SHARE)
    train, test = order[:count], order[count:]
    return Digits(Examples(images[train], labels[train]), Examples(images[test], labels[test]))
