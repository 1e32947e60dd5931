"""`DenseBucket`: gradients that are summed, with known values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpistrat.bench.harness.expected_results import Task, expected, inputs
from mpistrat.bench.training_step.pending import Pending
from mpistrat.collectives.arrays.conversion import cut
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.bench.training_step.carrier import Carrier

__all__ = ["DTYPE", "DenseBucket"]

DTYPE = np.dtype(np.float32)
_FACTORS = 5
_NO_SUM = -1  # all sums are above 0


@dataclass(frozen=True)
class DenseBucket:
    """Gradients that are summed.

    Attributes
    ----------
    number
        Of the bucket. The values of neighbours differ, so that one in another's place is seen.
    task
        The sum of all its gradients as one array.
    gradients
        Of this rank, each in memory of its own.
    flat
        Where the sums go, one after the other.
    """

    number: int
    task: Task
    gradients: list[Array]
    flat: Array

    @classmethod
    def filled(cls, number: int, gradients: list[Array], rank: int, size: int) -> DenseBucket:
        """Give values to gradients, and return them as a bucket. **Local.**"""
        count = sum(one.size for one in gradients)
        task = Task("allreduce", DTYPE, "sum", count * DTYPE.itemsize, rank, size)
        values = np.asarray(inputs(task)) * _factor(number)
        for gradient, part in zip(gradients, cut(values, gradients), strict=True):
            gradient[...] = part
        return cls(number, task, gradients, np.full(count, _NO_SUM, DTYPE))

    @property
    def sums(self) -> list[Array]:
        """Views of `flat`, each shaped as its gradient."""
        return cut(self.flat, self.gradients)

    @property
    def nbytes(self) -> int:
        """Bytes of the gradients."""
        return self.task.nbytes

    @property
    def sizes(self) -> list[int]:
        """See `Bucket`."""
        return [one.size for one in self.gradients]

    def start(self, carrier: Carrier) -> Pending:
        """See `Bucket`."""
        return carrier.sum(self)

    def is_right(self, answer: Sequence[Array]) -> bool:
        """See `Bucket`."""
        total = np.asarray(expected(self.task)) * _factor(self.number)
        shapes = [one.shape for one in self.gradients]
        has_shapes = [one.shape for one in answer] == shapes
        is_right = has_shapes and np.array_equal(self.flat, total)
        for found, wanted in zip(answer, cut(total, self.gradients), strict=False):
            is_right = is_right and np.array_equal(found, wanted)
        self.flat.fill(_NO_SUM)
        return is_right


def _factor(number: int) -> np.float32:
    """Return what the values of a bucket are multiplied by: small, so that sums are exact."""
    return np.float32(1 + number % _FACTORS)
